package jinja

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a template's shape, so that neither parsing nor evaluation can exhaust the stack, which Go cannot recover from.
const (
	maxNesting   = 400    // of tags, and of brackets at three a pair
	maxExprNodes = 20_000 // in one expression
)

// Template is a parsed template. It is never changed and may be used by several goroutines.
type Template struct{ body []stmt }

// Parse reads a template. Its errors are *ParseError.
func Parse(source string) (t *Template, err error) {
	defer func() {
		if p := recover(); p != nil {
			t, err = nil, recovered(p)
		}
	}()
	p := &parser{toks: lex(source)}
	body := p.body()
	if tok := p.cur(); tok.kind != tEOF {
		p.fail("%s has no beginning", p.tagName())
	}
	return &Template{body}, nil
}

type parser struct {
	toks     []token
	pos      int
	depth    int // of tags and brackets
	nodes    int // in the expression being read
	loops    int
	mentions map[string]bool // names used in the macro being read
}

func (p *parser) cur() token { return p.toks[p.pos] }

func (p *parser) peek() token { return p.toks[min(p.pos+1, len(p.toks)-1)] }

func (p *parser) next() token {
	t := p.toks[p.pos]
	if t.kind != tEOF {
		p.pos++
	}
	return t
}

func (p *parser) fail(format string, args ...any) {
	panic(failure{&ParseError{p.cur().line, fmt.Sprintf(format, args...)}})
}

func (p *parser) is(k kind, text string) bool { return p.cur().kind == k && p.cur().text == text }

func (p *parser) skip(k kind, text string) bool {
	if p.is(k, text) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) expect(k kind, text string) {
	if !p.skip(k, text) {
		p.fail("expected %q, found %s", text, p.cur())
	}
}

func (p *parser) ident() string {
	if p.cur().kind != tName {
		p.fail("expected a name, found %s", p.cur())
	}
	return p.next().text
}

func (p *parser) enter() {
	if p.depth++; p.depth > maxNesting {
		p.fail("nested more than %d deep", maxNesting)
	}
}

func (p *parser) leave() { p.depth-- }

// tagName is the name of the tag that begins here.
func (p *parser) tagName() string {
	if p.cur().kind == tTagBegin {
		return "{% " + p.peek().text + " %}"
	}
	return p.cur().String()
}

// body reads up to a tag in ends, which it leaves, or to the end of the template.
func (p *parser) body(ends ...string) []stmt {
	p.enter()
	defer p.leave()
	var out []stmt
	for {
		switch t := p.cur(); t.kind {
		case tEOF:
			if len(ends) > 0 {
				p.fail("the template ends without {%% %s %%}", ends[len(ends)-1])
			}
			return out
		case tText:
			p.next()
			out = append(out, &textStmt{t.text})
		case tOutBegin:
			p.next()
			out = append(out, &outStmt{t.line, p.expressions()})
			if p.cur().kind != tOutEnd {
				p.fail("expected }}, found %s", p.cur())
			}
			p.next()
		case tTagBegin:
			tag := p.peek().text
			if slices.Contains(ends, tag) || len(ends) == 0 && strings.HasPrefix(tag, "end") {
				return out
			}
			p.next()
			out = p.statement(out)
		default:
			p.fail("%s does not belong here", t)
		}
	}
}

// end reads the end tag that body stopped at.
func (p *parser) end() {
	p.next() // {%
	p.next() // its name
	p.tagEnd()
}

func (p *parser) tagEnd() {
	if p.cur().kind != tTagEnd {
		p.fail("expected %%}, found %s", p.cur())
	}
	p.next()
}

func (p *parser) block(end string) []stmt {
	p.tagEnd()
	body := p.body(end)
	p.end()
	return body
}

func (p *parser) statement(out []stmt) []stmt {
	line := p.cur().line
	switch tag := p.ident(); tag {
	case "if":
		return append(out, p.ifTag())
	case "for":
		return append(out, p.forTag(line))
	case "set":
		return append(out, p.setTag(line))
	case "macro":
		return append(out, p.macroTag(line))
	case "call":
		return append(out, p.callTag(line))
	case "filter":
		wrap := p.filterChain()
		return append(out, &filterStmt{line, wrap, p.block("endfilter")})
	case "with":
		return append(out, p.withTag(line))
	case "generation": // transformers marks the assistant's tokens by it; it prints nothing
		return append(out, p.block("endgeneration")...)
	case "raw":
		p.tagEnd()
		if p.cur().kind == tText {
			out = append(out, &textStmt{p.next().text})
		}
		p.end()
		return out
	case "break", "continue":
		if p.loops == 0 {
			p.fail("{%% %s %%} outside a loop", tag)
		}
		p.tagEnd()
		if tag == "break" {
			return append(out, &breakStmt{})
		}
		return append(out, &continueStmt{})
	case "block", "extends", "include", "import", "from", "autoescape", "do", "trans", "debug":
		p.pos--
		p.fail("{%% %s %%} is not supported in chat templates", tag)
	default:
		p.pos--
		p.fail("{%% %s %%} is not a tag that begins something", tag)
	}
	return out
}

func (p *parser) ifTag() stmt {
	s := &ifStmt{}
	for {
		s.tests = append(s.tests, p.expressions())
		p.tagEnd()
		s.bodies = append(s.bodies, p.body("elif", "else", "endif"))
		p.next()
		switch p.ident() {
		case "elif":
			continue
		case "else":
			s.other = p.block("endif")
			return s
		}
		p.tagEnd()
		return s
	}
}

func (p *parser) forTag(line int) stmt {
	s := &forStmt{line: line, target: p.targets()}
	p.expect(tName, "in")
	p.nodes = 0
	s.iter = p.tuple(func() expr { return p.or() })
	if p.skip(tName, "if") {
		s.cond = p.expression()
	}
	s.recursive = p.skip(tName, "recursive")
	p.tagEnd()
	p.loops++
	s.body = p.body("else", "endfor")
	p.loops--
	p.next()
	if p.ident() == "else" {
		s.other = p.block("endfor")
		return s
	}
	p.tagEnd()
	return s
}

// targets reads what is assigned to: a, or a, b, or (a, b), or ns.a.
func (p *parser) targets() target {
	first := p.target()
	if !p.is(tOp, ",") {
		return first
	}
	t := target{line: first.line, tuple: []target{first}}
	for p.skip(tOp, ",") {
		if p.cur().kind != tName && !p.is(tOp, "(") || p.is(tName, "in") {
			break
		}
		t.tuple = append(t.tuple, p.target())
	}
	return t
}

func (p *parser) target() target {
	line := p.cur().line
	if p.skip(tOp, "(") {
		p.enter()
		t := p.targets()
		p.leave()
		p.expect(tOp, ")")
		return t
	}
	t := target{line: line, id: p.ident()}
	if slices.Contains([]string{"true", "false", "none", "True", "False", "None", "loop", "self"}, t.id) {
		p.pos--
		p.fail("%q cannot be assigned to", t.id)
	}
	if p.skip(tOp, ".") {
		t.attr = p.ident()
	}
	return t
}

func (p *parser) setTag(line int) stmt {
	t := p.targets()
	if p.skip(tOp, "=") {
		s := &setStmt{line, t, p.expressions()}
		p.tagEnd()
		return s
	}
	if t.tuple != nil {
		p.fail("expected =, found %s", p.cur())
	}
	s := &setBlockStmt{line: line, target: t}
	if p.skip(tOp, "|") {
		s.filters = p.filterChain()
	}
	s.body = p.block("endset")
	return s
}

// filterChain reads filters without the value that they are applied to.
func (p *parser) filterChain() func(expr) expr {
	p.nodes = 0
	var chain []filterExpr
	for {
		chain = append(chain, *p.filter(nil))
		if !p.skip(tOp, "|") {
			break
		}
	}
	return func(x expr) expr {
		for _, f := range chain {
			f.x = x
			x = &f
		}
		return x
	}
}

func (p *parser) macroTag(line int) stmt {
	s := &macroStmt{line: line, name: p.ident()}
	if !p.is(tOp, "(") {
		p.fail("expected the macro's parameters, found %s", p.cur())
	}
	s.sig = p.signature("endmacro")
	return s
}

func (p *parser) callTag(line int) stmt {
	s := &callStmt{line: line}
	start := p.pos
	if p.is(tOp, "(") { // the parameters stand before the call: read them first, with the body
		p.parameters(&s.sig)
	}
	p.nodes = 0
	call, ok := p.unary(true).(*callExpr)
	if !ok {
		p.pos = start
		p.fail("{%% call %%} needs a call of a macro")
	}
	s.call = call
	p.macroBody(&s.sig, "endcall")
	return s
}

func (p *parser) signature(end string) signature {
	var sig signature
	p.parameters(&sig)
	p.macroBody(&sig, end)
	return sig
}

func (p *parser) parameters(sig *signature) {
	p.expect(tOp, "(")
	for !p.skip(tOp, ")") {
		if len(sig.params) > 0 {
			p.expect(tOp, ",")
			if p.skip(tOp, ")") {
				return
			}
		}
		sig.params = append(sig.params, p.ident())
		if p.skip(tOp, "=") {
			sig.defaults = append(sig.defaults, p.expression())
		} else if len(sig.defaults) > 0 {
			p.fail("a parameter without a default follows one with a default")
		}
	}
}

func (p *parser) macroBody(sig *signature, end string) {
	outer, loops := p.mentions, p.loops
	p.mentions, p.loops = map[string]bool{}, 0
	sig.body = p.block(end)
	sig.usesVarargs, sig.usesKwargs, sig.usesCaller = p.mentions["varargs"], p.mentions["kwargs"], p.mentions["caller"]
	p.mentions, p.loops = outer, loops
}

func (p *parser) withTag(line int) stmt {
	s := &withStmt{line: line}
	for p.cur().kind != tTagEnd {
		if len(s.targets) > 0 {
			p.expect(tOp, ",")
		}
		s.targets = append(s.targets, p.target())
		p.expect(tOp, "=")
		s.values = append(s.values, p.expression())
	}
	s.body = p.block("endwith")
	return s
}

// expressions reads an expression, or several that make a tuple.
func (p *parser) expressions() expr {
	p.nodes = 0
	return p.tuple(p.cond)
}

func (p *parser) tuple(item func() expr) expr {
	first := item()
	if !p.is(tOp, ",") {
		return first
	}
	items := []expr{first}
	for p.skip(tOp, ",") {
		if k := p.cur().kind; k == tTagEnd || k == tOutEnd || p.is(tOp, ")") {
			break
		}
		items = append(items, item())
	}
	return &tupleExpr{items}
}

func (p *parser) expression() expr {
	p.nodes = 0
	return p.cond()
}

// node counts what an expression is made of.
func (p *parser) node() int {
	if p.nodes++; p.nodes > maxExprNodes {
		p.fail("an expression has more than %d parts", maxExprNodes)
	}
	return p.cur().line
}

func (p *parser) cond() expr {
	p.enter()
	defer p.leave()
	x := p.or()
	for p.is(tName, "if") {
		p.node()
		p.next()
		c := &condExpr{then: x, test: p.or()}
		if p.skip(tName, "else") {
			c.other = p.cond()
		}
		x = c
	}
	return x
}

func (p *parser) or() expr {
	x := p.and()
	for p.is(tName, "or") {
		p.node()
		p.next()
		x = &logicExpr{false, x, p.and()}
	}
	return x
}

func (p *parser) and() expr {
	x := p.not()
	for p.is(tName, "and") {
		p.node()
		p.next()
		x = &logicExpr{true, x, p.not()}
	}
	return x
}

func (p *parser) not() expr {
	n := 0
	for ; p.is(tName, "not"); n++ {
		p.node()
		p.next()
	}
	x := p.compare()
	for range n {
		x = &notExpr{x}
	}
	return x
}

func (p *parser) compare() expr {
	line := p.cur().line
	x := p.sum()
	var ops []comparison
	for {
		op := p.cur().text
		switch {
		case p.cur().kind == tOp && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, op), p.is(tName, "in"):
			p.next()
		case p.is(tName, "not") && p.peek().kind == tName && p.peek().text == "in":
			p.pos += 2
			op = "notin"
		default:
			if ops == nil {
				return x
			}
			return &compareExpr{line, x, ops}
		}
		p.node()
		ops = append(ops, comparison{op, p.sum()})
	}
}

func (p *parser) binary(ops []string, operand func() expr) expr {
	x := operand()
	for p.cur().kind == tOp && slices.Contains(ops, p.cur().text) {
		line := p.node()
		op := p.next().text
		x = &binaryExpr{line, op, x, operand()}
	}
	return x
}

func (p *parser) sum() expr { return p.binary([]string{"+", "-"}, p.concat) }

func (p *parser) concat() expr {
	x := p.product()
	if !p.is(tOp, "~") {
		return x
	}
	c := &concatExpr{p.cur().line, []expr{x}}
	for p.skip(tOp, "~") {
		p.node()
		c.parts = append(c.parts, p.product())
	}
	return c
}

func (p *parser) product() expr { return p.binary([]string{"*", "/", "//", "%"}, p.power) }

func (p *parser) power() expr { return p.binary([]string{"**"}, func() expr { return p.unary(true) }) }

func (p *parser) unary(filters bool) expr {
	p.enter()
	defer p.leave()
	var x expr
	if p.is(tOp, "-") || p.is(tOp, "+") {
		line := p.node()
		op := p.next().text
		x = &unaryExpr{line, op, p.unary(false)}
	} else {
		x = p.primary()
	}
	x = p.postfix(x)
	for filters {
		switch {
		case p.skip(tOp, "|"):
			x = p.filter(x)
		case p.is(tName, "is"):
			p.next()
			x = p.test(x)
		case p.is(tOp, "("):
			x = p.call(x)
		default:
			return x
		}
	}
	return x
}

var constants = map[string]any{"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil}

func (p *parser) primary() expr {
	line := p.node()
	t := p.next()
	switch t.kind {
	case tName:
		if v, ok := constants[t.text]; ok {
			return &literal{v}
		}
		if t.text == "self" || t.text == "super" {
			p.pos--
			p.fail("%q is not supported in chat templates", t.text)
		}
		if p.mentions != nil {
			p.mentions[t.text] = true
		}
		return &name{line, t.text}
	case tString:
		s := t.text
		for p.cur().kind == tString {
			s += p.next().text
		}
		return &literal{s}
	case tInt, tFloat:
		return &literal{p.number(t)}
	}
	p.enter()
	defer p.leave()
	switch {
	case t.kind == tOp && t.text == "(":
		if p.skip(tOp, ")") {
			return &tupleExpr{}
		}
		x := p.tuple(p.cond)
		p.expect(tOp, ")")
		return x
	case t.kind == tOp && t.text == "[":
		l := &listExpr{}
		p.sequence("]", func() { l.items = append(l.items, p.cond()) })
		return l
	case t.kind == tOp && t.text == "{":
		d := &dictExpr{line: line}
		p.sequence("}", func() {
			d.keys = append(d.keys, p.cond())
			p.expect(tOp, ":")
			d.values = append(d.values, p.cond())
		})
		return d
	}
	p.pos--
	if t.kind == tEOF {
		p.pos++
	}
	p.fail("expected a value, found %s", t)
	return nil
}

// sequence reads items between commas up to the closing bracket; one comma may trail.
func (p *parser) sequence(closing string, item func()) {
	for !p.skip(tOp, closing) {
		item()
		if !p.skip(tOp, ",") {
			p.expect(tOp, closing)
			return
		}
	}
}

func (p *parser) number(t token) any {
	bad := func() {
		panic(failure{&ParseError{t.line, fmt.Sprintf("%q is not a number that fits 64 bits", t.text)}})
	}
	digits := strings.ReplaceAll(t.text, "_", "")
	if t.kind == tFloat {
		v, err := strconv.ParseFloat(digits, 64)
		if err != nil || strings.HasSuffix(digits, ".") {
			bad()
		}
		return v
	}
	if strings.Trim(digits, "0") == "" {
		return int64(0)
	}
	v, err := strconv.ParseInt(digits, 0, 64)
	if err != nil || digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9' {
		bad()
	}
	return v
}

func (p *parser) postfix(x expr) expr {
	for p.cur().kind == tOp {
		switch p.cur().text {
		case ".":
			line := p.node()
			p.next()
			switch t := p.next(); t.kind {
			case tName:
				x = &attrExpr{line, x, t.text}
			case tInt:
				x = &itemExpr{line, x, &literal{p.number(t)}}
			default:
				p.pos--
				p.fail("expected a name behind the dot, found %s", t)
			}
		case "[":
			x = p.subscript(x)
		case "(":
			x = p.call(x)
		default:
			return x
		}
	}
	return x
}

func (p *parser) subscript(x expr) expr {
	p.enter()
	defer p.leave()
	line := p.node()
	p.next()
	var parts [3]expr
	colons := 0
	for !p.is(tOp, "]") {
		if p.skip(tOp, ":") {
			if colons++; colons > 2 {
				p.fail("a slice has at most two colons")
			}
			continue
		}
		if parts[colons] != nil {
			p.fail("expected ], found %s", p.cur())
		}
		parts[colons] = p.cond()
	}
	p.next()
	if colons > 0 {
		return &sliceExpr{line, x, parts[0], parts[1], parts[2]}
	}
	if parts[0] == nil {
		p.fail("the brackets are empty")
	}
	return &itemExpr{line, x, parts[0]}
}

func (p *parser) call(f expr) *callExpr {
	line := p.node()
	return &callExpr{line, f, p.arguments()}
}

func (p *parser) arguments() arguments {
	p.enter()
	defer p.leave()
	p.expect(tOp, "(")
	var a arguments
	p.sequence(")", func() {
		switch {
		case p.is(tOp, "*") || p.is(tOp, "**"):
			p.fail("unpacking arguments with %s is not supported", p.cur().text)
		case p.cur().kind == tName && p.peek().kind == tOp && p.peek().text == "=":
			id := p.ident()
			p.next()
			if slices.Contains(a.names, id) {
				p.fail("the argument %q is given twice", id)
			}
			a.names = append(a.names, id)
			a.named = append(a.named, p.cond())
		default:
			if len(a.names) > 0 {
				p.fail("an argument without a name follows one with a name")
			}
			a.pos = append(a.pos, p.cond())
		}
	})
	return a
}

func (p *parser) filter(x expr) *filterExpr {
	f := &filterExpr{line: p.node(), x: x, name: p.ident()}
	if _, ok := filters[f.name]; !ok {
		p.pos--
		p.fail("the filter %q is not supported", f.name)
	}
	if p.is(tOp, "(") {
		f.args = p.arguments()
	}
	return f
}

// test reads what follows "is". One argument may stand without brackets: x is divisibleby 3.
func (p *parser) test(x expr) expr {
	t := &testExpr{line: p.node(), x: x}
	t.negate = p.skip(tName, "not")
	t.name = p.ident()
	if _, ok := tests[t.name]; !ok {
		p.pos--
		p.fail("the test %q is not supported", t.name)
	}
	c := p.cur()
	switch {
	case p.is(tOp, "("):
		t.args = p.arguments()
	case c.kind == tName && !slices.Contains([]string{"else", "or", "and"}, c.text),
		c.kind == tString, c.kind == tInt, c.kind == tFloat, p.is(tOp, "["), p.is(tOp, "{"):
		if c.text == "is" && c.kind == tName {
			p.fail("tests cannot be chained with is")
		}
		if c.kind == tName && (c.text == "if" || c.text == "in" || c.text == "not") {
			p.fail("put brackets around the test before %q", c.text) // Jinja2 takes the word for the test's argument
		}
		t.args.pos = []expr{p.postfix(p.primary())}
	}
	return t
}
