package jinja

import (
	"slices"
	"strings"
)

const (
	maxNesting = 200 // of tags and expressions; limits the stack
	maxNames   = 255 // of macro parameters or keyword arguments
)

// Template is a parsed template. It is immutable and safe for concurrent use.
type Template struct{ body block }

// Parse parses a template. Errors are *Error.
func Parse(source string) (t *Template, err error) {
	defer func() {
		if p := recover(); p != nil {
			t, err = nil, recovered(p)
		}
	}()
	p := &parser{toks: lex(source), ids: map[string]int{}, frame: &frame{seen: map[string]bool{}}}
	t = &Template{block{p.frame, p.body()}}
	p.failIf(p.cur().kind != tEOF, "{%% %s %%} without a block to end", p.peek().text)
	for _, f := range p.frames {
		f.unset = slices.DeleteFunc(f.unset, func(n *name) bool { return f.parent.knows(n.text) })
	}
	return t, nil
}

type parser struct {
	toks    []token
	pos     int
	depth   int
	loops   int     // enclosing loops in the same macro
	soft    bool    // in {% if %}, where an unknown filter or test fails only if it is used
	unknown []token // unknown filters and tests of the current expression
	ids     map[string]int
	frame   *frame   // the current one
	frames  []*frame // all except the outermost
	special [3]bool  // specials that the enclosing macro reads
}

var specials = []string{"caller", "varargs", "kwargs"}

func (p *parser) failIf(fails bool, format string, args ...any) {
	if fails {
		failParse(p.cur().line, format, args...)
	}
}

func (p *parser) cur() token  { return p.toks[p.pos] }
func (p *parser) peek() token { return p.toks[min(p.pos+1, len(p.toks)-1)] }

func (p *parser) next() token {
	t := p.cur()
	p.pos = min(p.pos+1, len(p.toks)-1)
	return t
}

func (p *parser) is(k tokenKind, text string) bool { return p.cur().kind == k && p.cur().text == text }

func (p *parser) skip(k tokenKind, text string) bool {
	ok := p.is(k, text)
	if ok {
		p.pos++
	}
	return ok
}

func (p *parser) expect(k tokenKind, text string) {
	p.failIf(!p.skip(k, text), "expected %q, found %s", text, p.cur())
}

func (p *parser) ident() string {
	p.failIf(p.cur().kind != tName, "expected a name, found %s", p.cur())
	return p.next().text
}

// enter and leave count nesting. Use them as defer p.leave(p.enter()).
func (p *parser) enter() int {
	p.depth++
	p.failIf(p.depth > maxNesting, "tags or expressions nest more than %d deep", maxNesting)
	return p.depth - 1
}

func (p *parser) leave(depth int) { p.depth = depth }

// variable returns the name node of a variable.
func (p *parser) variable(text string) *name {
	id, ok := p.ids[text]
	if !ok {
		id = len(p.ids)
		p.ids[text] = id
	}
	return &name{text, id}
}

// see records that a name is read or assigned in the current frame.
func (p *parser) see(text string, assigned bool) *name {
	n := p.variable(text)
	if i := slices.Index(specials, text); p.frame.seen[text] {
		return n
	} else if assigned && !p.soft {
		p.frame.unset = append(p.frame.unset, n)
	} else if !assigned && i >= 0 {
		p.special[i] = true
	}
	p.frame.seen[text] = true
	return n
}

// assigned records that the names of t are assigned in the current frame.
func (p *parser) assigned(t target) {
	if t.name != nil {
		p.see(t.name.text, t.attr == "")
	}
	for _, x := range t.tuple {
		p.assigned(x)
	}
}

// within runs f in a new frame with parameters.
func (p *parser) within(f func(), params ...target) *frame {
	in := &frame{parent: p.frame, seen: map[string]bool{}}
	p.frames = append(p.frames, in)
	outer, soft := p.frame, p.soft
	p.frame, p.soft = in, false
	for _, t := range params {
		p.assigned(t)
	}
	in.unset = nil // parameters are set at entry
	f()
	p.frame, p.soft = outer, soft
	return in
}

// checked fails if the expression has unknown filters or tests, unless p.soft is set.
func (p *parser) checked() {
	for _, t := range p.unknown {
		if !p.soft {
			failParse(t.line, "unknown filter or test %q", t.text)
		}
	}
	p.unknown = nil
}

// body parses statements up to a tag in ends, which it does not consume, or to the end.
func (p *parser) body(ends ...string) []stmt {
	defer p.leave(p.enter())
	var out []stmt
	for {
		t := p.next()
		switch tag := p.cur().text; {
		case t.kind == tText:
			out = append(out, &textStmt{t.text})
		case t.kind == tOutBegin:
			out = append(out, &outStmt{t.line, parseTuple(p, parseCond)})
			p.expect(tOutEnd, "}}")
		case t.kind == tEOF && len(ends) > 0:
			failParse(t.line, "the template ends without {%% %s %%}", ends[len(ends)-1])
		case t.kind == tEOF:
			return out
		case slices.Contains(ends, tag) || len(ends) == 0 && strings.HasPrefix(tag, "end"):
			p.pos--
			return out
		default:
			out = append(out, p.statement())
		}
		p.checked()
	}
}

// blockBegin parses the end of a tag that has a body. It allows a colon before it.
func (p *parser) blockBegin() {
	p.skip(tOp, ":")
	p.expect(tTagEnd, "%}")
	p.checked()
}

// blockBody parses the body of a tag and its end tag.
func (p *parser) blockBody(end string) []stmt {
	p.blockBegin()
	body := p.body(end)
	p.pos += 2 // {% end
	p.expect(tTagEnd, "%}")
	return body
}

// block parses a body in a new frame with parameters.
func (p *parser) block(end string, params ...target) (b block) {
	b.frame = p.within(func() { b.stmts = p.blockBody(end) }, params...)
	return b
}

func (p *parser) statement() stmt {
	line := p.cur().line
	switch tag := p.ident(); tag {
	case "if":
		return parseIf(p)
	case "for":
		return parseFor(p, line)
	case "set":
		return parseSet(p, line)
	case "with":
		return parseWith(p, line)
	case "macro":
		n := p.see(parseAssignable(p), true)
		return &macroStmt{n, parseMacro(p, line, n.text, "endmacro", true, func() {})}
	case "generation":
		return &callStmt{line: line, body: parseMacro(p, line, "", "endgeneration", false, func() {})}
	case "call":
		s := &callStmt{line: line}
		s.body = parseMacro(p, line, "", "endcall", p.is(tOp, "("), func() {
			var ok bool
			s.call, ok = parseCond(p).(*callExpr)
			p.failIf(!ok, "{%% call %%} must call a macro")
			p.checked()
		})
		return s
	case "filter":
		return &setBlockStmt{line: line, prints: true, filters: parseFilterChain(p), body: p.block("endfilter")}
	case "break", "continue":
		p.failIf(p.loops == 0, "{%% %s %%} outside a loop", tag)
		p.expect(tTagEnd, "%}")
		if tag == "break" {
			return broken
		}
		return continued
	default:
		failParse(line, "the tag {%% %s %%} is unknown or not supported", tag)
	}
	return nil
}

func parseIf(p *parser) stmt {
	s := &ifStmt{}
	defer func(soft bool) { p.soft = soft }(p.soft)
	p.soft = true
	for tag := "elif"; tag == "elif"; tag = p.ident() {
		s.tests = append(s.tests, parseTuple(p, parseOr))
		p.blockBegin()
		s.bodies = append(s.bodies, p.body("elif", "else", "endif"))
		p.next()
	}
	if p.toks[p.pos-1].text == "else" {
		s.bodies = append(s.bodies, p.blockBody("endif"))
	} else {
		p.expect(tTagEnd, "%}")
	}
	return s
}

func parseFor(p *parser, line int) stmt {
	s := &forStmt{line: line, target: parseTargets(p, false)}
	p.expect(tName, "in")
	s.iter = parseTuple(p, parseOr)
	p.checked()
	if p.skip(tName, "if") {
		s.condFrame = p.within(func() {
			s.cond = parseCond(p)
			p.checked()
		}, s.target)
	}
	s.recursive = p.skip(tName, "recursive")
	p.blockBegin()
	outer := p.loops
	p.loops++
	loop := p.variable("loop")
	s.loop = loop.id
	s.body.frame = p.within(func() { s.body.stmts = p.body("else", "endfor") }, s.target, target{name: loop})
	if p.loops = outer; s.recursive {
		p.loops = 0 // the else of a recursive loop is in a function
	}
	p.next()
	if p.ident() == "else" {
		s.other = p.block("endfor")
	} else {
		p.expect(tTagEnd, "%}")
	}
	p.loops = outer
	return s
}

// parseTargets parses the left side of an assignment: a, (a, b), or ns.a if attributes is set.
func parseTargets(p *parser, attributes bool) target {
	t := parseTarget(p, attributes)
	if !p.is(tOp, ",") {
		return t
	}
	t = target{tuple: []target{t}}
	for p.skip(tOp, ",") && p.cur().kind != tTagEnd && !p.is(tOp, ")") {
		t.tuple = append(t.tuple, parseTarget(p, attributes))
	}
	return t
}

func parseTarget(p *parser, attributes bool) target {
	if p.skip(tOp, "(") {
		defer p.leave(p.enter())
		t := parseTargets(p, false)
		p.expect(tOp, ")")
		return t
	}
	t := target{name: p.variable(parseAssignable(p))}
	if attributes && p.skip(tOp, ".") {
		t.attr = p.ident()
	}
	return t
}

// parseAssignable parses a name that can be assigned.
func parseAssignable(p *parser) string {
	t := p.cur()
	_, isConstant := constants[t.text]
	p.failIf(isConstant || t.text == "loop" || slices.Contains(reserved, t.text), "cannot assign to %s", t)
	return p.ident()
}

func parseSet(p *parser, line int) stmt {
	t := parseTargets(p, true)
	if p.skip(tOp, "=") {
		s := &setStmt{line, t, parseTuple(p, parseCond)}
		p.assigned(t)
		p.expect(tTagEnd, "%}")
		return s
	}
	p.assigned(t)
	s := &setBlockStmt{line: line, target: t}
	if p.skip(tOp, "|") {
		before := len(p.frame.seen)
		s.filters = parseFilterChain(p)
		p.failIf(len(p.frame.seen) > before, "a new variable in the filters of {%% set %%} is not supported")
	}
	s.body = p.block("endset")
	return s
}

// parseFilterChain parses the filters that apply to the text of a body.
func parseFilterChain(p *parser) *filterExpr {
	f := parseFilter(p, nil)
	for p.skip(tOp, "|") {
		f = parseFilter(p, f)
	}
	return f
}

// parseMacro parses the parameters of a macro, calls between, and parses the body.
func parseMacro(p *parser, line int, label, end string, params bool, between func()) *macroDef {
	m := &macroDef{label: label}
	head := p.within(func() {
		if params {
			parseParameters(p, m)
		}
	})
	between()
	outer, loops := p.special, p.loops
	p.special, p.loops = [3]bool{}, 0
	m.body.frame = p.within(func() {
		for text := range head.seen {
			p.frame.seen[text] = !slices.Contains(specials, text)
		}
		m.body.stmts = p.blockBody(end)
	})
	own := p.special
	p.loops = loops
	for i, to := range []**name{&m.caller, &m.varargs, &m.kwargs} {
		at := slices.IndexFunc(m.params, func(n *name) bool { return n.text == specials[i] })
		if own[i] && at < 0 {
			*to = p.variable(specials[i])
		}
		p.failIf(own[i] && i == 0 && at >= 0 && at < len(m.params)-len(m.defaults),
			"the parameter caller needs a default")
		p.special[i] = own[i] || outer[i]
	}
	return m
}

func parseParameters(p *parser, m *macroDef) {
	p.expect(tOp, "(")
	for !p.skip(tOp, ")") {
		if len(m.params) > 0 {
			p.expect(tOp, ",")
		}
		n := p.see(parseAssignable(p), true)
		p.failIf(len(m.params) == maxNames, "more than %d parameters", maxNames)
		twice := slices.ContainsFunc(m.params, func(other *name) bool { return *other == *n })
		p.failIf(twice, "duplicate parameter %q", n.text)
		m.params = append(m.params, n)
		hasDefault := p.skip(tOp, "=")
		p.failIf(!hasDefault && len(m.defaults) > 0, "a parameter without a default follows one with a default")
		if hasDefault {
			m.defaults = append(m.defaults, parseCond(p))
		}
	}
	p.checked()
}

func parseWith(p *parser, line int) stmt {
	s := &withStmt{line: line}
	for p.cur().kind != tTagEnd && !p.is(tOp, ":") {
		if len(s.targets) > 0 {
			p.expect(tOp, ",")
		}
		s.targets = append(s.targets, parseTargets(p, false))
		p.expect(tOp, "=")
		s.values = append(s.values, parseCond(p))
	}
	p.checked()
	s.body = p.block("endwith", s.targets...)
	return s
}
