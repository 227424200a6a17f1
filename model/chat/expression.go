package chat

import (
	"slices"
	"strings"
)

// tag reads a tag, brings its expressions into the form that gonja reads rightly, and writes it.
func (s *source) tag(kind byte) error {
	closing, line := "%}", s.line
	if kind == '{' {
		closing = "}}"
	}
	toks, err := s.lex(closing)
	if err != nil {
		return err
	}
	after := s.line
	s.line = line // of the tag, for errors and marks
	defer func() { s.line = after }()
	if kind == '{' {
		out, err := s.list(toks)
		if err != nil {
			return err
		}
		s.emit("{{", out, closing)
		return nil
	}
	if len(toks) == 0 || toks[0].kind != 'n' && toks[0].kind != 'k' {
		return s.errorf("expected the name of a tag")
	}
	s.line = toks[0].line
	name, rest := toks[0], toks[1:]
	out, err := s.statement(name.text, rest)
	if err != nil || name.text == "generation" || name.text == "endgeneration" {
		return err
	}
	if len(s.open) > maxNesting {
		return s.errorf("tags nest more than %d deep", maxNesting)
	}
	s.emit("{%", append([]token{name}, out...), closing)
	return nil
}

// statement checks a tag and its place, and gives what follows its name.
func (s *source) statement(name string, toks []token) ([]token, error) {
	top := ""
	if len(s.open) > 0 {
		top = s.open[len(s.open)-1]
	}
	if len(toks) > 0 && strings.Contains(" else endif endfor endset endmacro break continue generation endgeneration ", " "+name+" ") {
		return nil, s.errorf("unexpected %q in {%% %s %%}", toks[0].text, name)
	}
	misplaced := s.errorf("{%% %s %%} has no beginning", name)
	switch name {
	case "endif", "endfor", "endset", "endmacro", "endgeneration":
		if strings.TrimSuffix(top, " else") != name[3:] {
			if top != "" {
				return nil, s.errorf("{%% %s %%} found where the end of {%% %s %%} is expected", name, top)
			}
			return nil, misplaced
		}
		s.open = s.open[:len(s.open)-1]
		return nil, nil
	case "elif":
		if top != "if" {
			return nil, misplaced
		}
		return s.whole(toks)
	case "else":
		if top != "if" && top != "for" {
			return nil, misplaced
		}
		s.open[len(s.open)-1] += " else"
		return nil, nil
	case "break", "continue":
		for _, o := range slices.Backward(s.open) {
			switch o {
			case "for":
				return nil, nil
			case "macro", "for else":
				return nil, s.errorf("{%% %s %%} stands outside of a loop", name)
			}
		}
		return nil, s.errorf("{%% %s %%} stands outside of a loop", name)
	case "generation":
		s.open = append(s.open, name)
		return nil, nil
	case "if":
		s.open = append(s.open, name)
		return s.whole(toks)
	case "macro":
		s.open = append(s.open, name)
		if len(toks) < 3 || toks[0].kind != 'n' || toks[1].text != "(" || toks[len(toks)-1].text != ")" {
			return nil, s.errorf("expected {%% macro name(arguments) %%}")
		}
		for i, t := range toks {
			if reserved(t.text) && toks[i-1].text != "=" {
				return nil, s.errorf("%q cannot be the name of a macro or an argument", t.text)
			}
		}
		return s.whole(toks)
	case "for":
		s.open = append(s.open, name)
		return s.forLoop(toks)
	case "set":
		at := index(toks, "=")
		targets := toks
		if at >= 0 {
			targets = toks[:at]
		} else {
			s.open = append(s.open, name)
		}
		if err := s.targets(targets); err != nil {
			return nil, err
		}
		if at < 0 {
			return toks, nil
		}
		out, err := s.list(toks[at+1:])
		return append(slices.Clone(toks[:at+1]), out...), err
	}
	return nil, s.errorf("{%% %s %%} is not supported", name)
}

// targets checks what is set: names, and name.attribute.
func (s *source) targets(toks []token) error {
	for i, t := range toks {
		if t.text == "|" {
			return s.errorf("filters in {%% set %%} ... {%% endset %%} are not supported")
		}
		if t.text == "(" && i > 0 {
			return s.errorf("names within brackets, among others to be set, are not supported")
		}
		if t.kind != 'n' && t.text != "," && t.text != "." && t.text != "(" && t.text != ")" || reserved(t.text) {
			return s.errorf("%q cannot be set", t.text)
		}
	}
	return nil
}

func reserved(name string) bool {
	return strings.Contains(" true false none True False None self ", " "+name+" ")
}

func (s *source) forLoop(toks []token) ([]token, error) {
	in := index(toks, "in")
	if in < 0 {
		return nil, s.errorf("expected {%% for name in expression %%}")
	}
	if err := s.targets(toks[:in]); err != nil {
		return nil, err
	}
	out := slices.Clone(toks[:in+1])
	items, cond := toks[in+1:], []token(nil)
	if n := len(items); n > 0 && items[n-1].text == "recursive" && items[n-1].kind == 'n' {
		return nil, s.errorf("{%% for ... recursive %%} is not supported")
	}
	if at := index(items, "if"); at >= 0 {
		items, cond = items[:at], items[at:]
	}
	items, err := s.list(items)
	if err != nil || cond == nil {
		return append(out, items...), err
	}
	out = append(append(out, items...), cond[0])
	cond, err = s.whole(cond[1:])
	return append(out, cond...), err
}

// index finds the first of some tokens outside of brackets.
func index(toks []token, texts ...string) int {
	depth := 0
	for i, t := range toks {
		if t.kind == 's' {
			continue
		}
		switch t.text {
		case "(", "[", "{":
			depth++
		case ")", "]", "}":
			depth--
		default:
			if depth == 0 && slices.Contains(texts, t.text) {
				return i
			}
		}
	}
	return -1
}

// list takes an expression, or several with commas between them, which make a tuple.
func (s *source) list(toks []token) ([]token, error) {
	if index(toks, ",") < 0 {
		return s.whole(toks)
	}
	out, err := s.segments(toks, nil)
	line := toks[0].line
	return append(append([]token{{'o', "(", line}}, out...), token{'o', ")", line}), err
}

// segments takes what stands between brackets: expressions with , and : and = between them.
func (s *source) segments(toks, out []token) ([]token, error) {
	names := map[string]bool{}
	for {
		at := index(toks, ",", ":", "=")
		part := toks
		if at >= 0 {
			part = toks[:at]
		}
		switch {
		case len(part) > 0:
			var err error
			if part, err = s.whole(part); err != nil {
				return nil, err
			}
			out = append(out, part...)
		case at >= 0 && toks[at].text != ":":
			return nil, s.errorf("unexpected %q", toks[at].text)
		}
		if at < 0 {
			return out, nil
		}
		if toks[at].text == "=" {
			if at != 1 || toks[0].kind != 'n' || names[toks[0].text] {
				return nil, s.errorf("unexpected \"=\"")
			}
			names[toks[0].text] = true
		}
		out = append(out, toks[at])
		toks = toks[at+1:]
	}
}

// whole takes one expression. "a if b else c" becomes "((b) and [a] or [c])[0]": gonja knows conditions only at the end of {{ }} and
// {% set %}. As in Jinja2 only the branch that is taken is evaluated.
func (s *source) whole(toks []token) ([]token, error) {
	var tails []token
	var out []token
	for conditions := 0; ; conditions++ {
		at := index(toks, "if")
		if at < 0 {
			last, err := s.operand(toks)
			return append(append(out, last...), tails...), err
		}
		if conditions == maxNesting {
			return nil, s.errorf("more than %d conditions in one tag", maxNesting)
		}
		yes, rest := toks[:at], toks[at+1:]
		if n := len(yes); n > 2 && yes[n-1].kind == 'n' && (yes[n-2].text == "is" || yes[n-2].text == "not" && yes[n-3].text == "is") {
			return nil, s.errorf("put brackets around the test before \"if\": Jinja2 takes \"if\" for its argument")
		}
		split := index(rest, "else")
		if another := index(rest, "if"); another >= 0 && (split < 0 || another < split) {
			return nil, s.errorf("put brackets around the inner one of these conditions")
		}
		cond, no := rest, []token{{'n', undefinedName, toks[at].line}}
		if split >= 0 {
			cond, no = rest[:split], rest[split+1:]
		}
		yes, err := s.operand(yes)
		if err != nil {
			return nil, err
		}
		if cond, err = s.operand(cond); err != nil {
			return nil, err
		}
		sign := func(texts ...string) (signs []token) {
			for _, text := range texts {
				signs = append(signs, token{'o', text, toks[at].line})
			}
			return signs
		}
		out = slices.Concat(out, sign("(", "("), cond, sign(")", "and", "["), yes, sign("]", "or", "["))
		tails = append(tails, sign("]", ")", "[", "0", "]")...)
		toks = no
	}
}

// undefinedName is a name that no template can set.
const undefinedName = "__undefined"

// operand takes an expression without conditions, and checks what gonja does not: that operands and operators alternate, and that nothing
// stands beside "is" and "in" that Jinja2 would take in another order.
func (s *source) operand(toks []token) ([]token, error) {
	if len(toks) == 0 {
		return nil, s.errorf("expected an expression")
	}
	s.line = toks[0].line
	var (
		out     []token
		math    bool // an operator since the last and, or
		tested  bool // is or in since the last and, or
		closing bool // an "in" waits for its closing bracket
		ended   bool // the last token ends an operand
	)
	for i := 0; i < len(toks); i++ {
		t := toks[i]
		s.line = t.line
		switch {
		case t.kind == 'k' && (t.text == "and" || t.text == "or"):
			if !ended {
				return nil, s.errorf("unexpected %q", t.text)
			}
			if closing {
				out = append(out, token{'o', ")", t.line})
			}
			math, tested, closing, ended = false, false, false, false
		case t.text == "not" && t.kind == 'k' && !ended:
			if i > 0 && toks[i-1].kind != 'k' || i > 0 && toks[i-1].text == "not" {
				return nil, s.errorf("put brackets around this \"not\"")
			}
		case t.kind == 'k' && (t.text == "is" || t.text == "in" || t.text == "not"):
			negated := t.text == "not"
			if !ended || negated && (i+1 == len(toks) || toks[i+1].text != "in") {
				return nil, s.errorf("unexpected %q", t.text)
			}
			if math && t.text == "is" || tested || comparison(out) {
				return nil, s.errorf("put brackets around what stands before %q: gonja would take it in another order than Jinja2", t.text)
			}
			tested, math = true, false
			if t.text == "is" {
				n := i + 1
				if n < len(toks) && toks[n].text == "not" {
					n++
				}
				if n == len(toks) || toks[n].kind != 'n' && toks[n].text != "in" {
					return nil, s.errorf("expected the name of a test behind \"is\"")
				}
				name := toks[n]
				out = append(out, toks[i:n+1]...)
				i, ended = n, true
				if n+1 < len(toks) && (toks[n+1].kind == 'n' || toks[n+1].kind == 's' || toks[n+1].kind == '0' || name.text == "in") {
					ended = false // it has an argument
				}
				continue
			}
			if negated {
				out = append(out, t)
				i++
			}
			out = append(out, toks[i], token{'o', "(", t.line})
			closing, ended = true, false
			continue
		case t.kind == 'o' && strings.Contains(" ( [ { ", " "+t.text+" "):
			end := closingBracket(toks, i)
			if t.text == "{" && ended {
				return nil, s.errorf("unexpected %q", t.text)
			}
			inner, err := s.segments(toks[i+1:end], nil)
			if end == i+1 {
				inner, err = nil, nil
			}
			if err != nil {
				return nil, err
			}
			if ended && t.text == "[" && len(inner) == 0 {
				return nil, s.errorf("expected an index")
			}
			if n := len(inner); n > 0 && inner[n-1].text == "," {
				inner = inner[:n-1] // gonja takes no comma at the end of a dict
				if t.text == "(" && index(inner, ",") < 0 && !ended {
					inner = append(inner, token{'o', ",", t.line})
				}
			}
			out = append(append(append(out, t), inner...), toks[end])
			i, ended = end, true
			continue
		case t.kind == 'o':
			switch {
			case t.text == "." || t.text == "|":
				if !ended || i+1 == len(toks) || toks[i+1].kind != 'n' && (t.text == "|" || toks[i+1].kind != '0') {
					return nil, s.errorf("unexpected %q", t.text)
				}
				if t.text == "|" && tested && !closing {
					return nil, s.errorf("put brackets around the test before \"|\"")
				}
				out = append(out, t, toks[i+1])
				i++
				continue
			case !ended && (t.text == "-" || t.text == "+"):
				if i > 0 && toks[i-1].kind == 'o' && (toks[i-1].text == "-" || toks[i-1].text == "+") && (i == 1 || !operandEnd(toks[i-2])) {
					return nil, s.errorf("put brackets around the second sign")
				}
			case !ended:
				return nil, s.errorf("unexpected %q", t.text)
			default:
				compares := strings.Contains(" == != < > <= >= ", " "+t.text+" ")
				if tested && (compares || !closing) {
					return nil, s.errorf("put brackets around what stands before %q: gonja would take it in another order than Jinja2", t.text)
				}
				if compares && comparison(out) {
					return nil, s.errorf("comparisons in a row are not supported: join them with \"and\"")
				}
				math, ended = true, false
			}
		default:
			if ended {
				return nil, s.errorf("unexpected %q", t.text)
			}
			ended = true
		}
		out = append(out, t)
	}
	if !ended {
		return nil, s.errorf("an expression ends too early")
	}
	if closing {
		out = append(out, token{'o', ")", s.line})
	}
	return out, nil
}

func operandEnd(t token) bool {
	return t.kind == 'n' || t.kind == 's' || t.kind == '0' || t.text == ")" || t.text == "]" || t.text == "}"
}

// comparison says that the expression so far ends in a comparison that is not in brackets.
func comparison(toks []token) bool {
	depth := 0
	for _, t := range slices.Backward(toks) {
		switch {
		case t.kind == 's':
		case t.text == ")" || t.text == "]" || t.text == "}":
			depth++
		case t.text == "(" || t.text == "[" || t.text == "{":
			depth--
		case depth == 0 && t.kind == 'k' && (t.text == "and" || t.text == "or"):
			return false
		case depth == 0 && strings.Contains(" == != < > <= >= ", " "+t.text+" "):
			return true
		}
	}
	return false
}

// closingBracket finds the bracket that closes the one at i.
func closingBracket(toks []token, i int) int {
	depth := 0
	for ; ; i++ {
		switch t := toks[i]; {
		case t.kind != 'o':
		case t.text == "(" || t.text == "[" || t.text == "{":
			depth++
		case t.text == ")" || t.text == "]" || t.text == "}":
			if depth--; depth == 0 {
				return i
			}
		}
	}
}
