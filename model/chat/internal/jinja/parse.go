package jinja

import (
	"slices"
	"strings"
)

// maxNesting bounds how deep tags and expressions nest in a template, and so the parser's stack.
const maxNesting = 200

// Template is a parsed template. It is immutable and safe for concurrent use.
type Template struct {
	body  []stmt
	frame *frame
}

// Parse reads a template. Its errors are *ParseError.
func Parse(source string) (t *Template, err error) {
	defer func() {
		if p := recover(); p != nil {
			t, err = nil, recovered(p)
		}
	}()
	p := &parser{toks: lex(source)}
	body := p.body()
	if p.cur().kind != tEOF {
		p.fail("%s has no beginning", p.tagName())
	}
	t = &Template{body: body}
	t.frame = resolve(body)
	return t, nil
}

type parser struct {
	toks  []token
	pos   int
	depth int
	loops int // around this place, in the same macro
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

func (p *parser) fail(format string, args ...any) { failParse(p.cur().line, format, args...) }

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

// enter and leave count nesting: defer p.leave(p.enter()).
func (p *parser) enter() int {
	if p.depth++; p.depth > maxNesting {
		p.fail("tags or expressions nest more than %d deep", maxNesting)
	}
	return p.depth - 1
}

func (p *parser) leave(depth int) { p.depth = depth }

// tagName is the tag that begins here.
func (p *parser) tagName() string {
	if p.cur().kind == tTagBegin {
		return "{% " + p.peek().text + " %}"
	}
	return p.cur().String()
}

// body reads up to a tag in ends, which it leaves, or to the end of the template.
func (p *parser) body(ends ...string) []stmt {
	defer p.leave(p.enter())
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
			out = append(out, &textStmt{lit(t.text)})
		case tOutBegin:
			p.next()
			out = append(out, &outStmt{t.line, p.tuple(p.cond)})
			p.expect(tOutEnd, "}}")
		case tTagBegin:
			tag := p.peek().text
			if slices.Contains(ends, tag) || len(ends) == 0 && strings.HasPrefix(tag, "end") {
				return out
			}
			p.next()
			out = append(out, p.statement()...)
		default:
			p.fail("unexpected %s", t)
		}
	}
}

// block reads the body of a tag up to its end tag.
func (p *parser) block(end string) []stmt {
	p.blockBegin()
	body := p.body(end)
	p.pos += 2 // {% end
	p.expect(tTagEnd, "%}")
	return body
}

// blockBegin ends a tag that has a body. A colon is allowed there.
func (p *parser) blockBegin() {
	p.skip(tOp, ":")
	p.expect(tTagEnd, "%}")
}

// unsupported tags are Jinja2's, but make no sense without other templates.
var unsupported = []string{"block", "extends", "include", "import", "from", "autoescape"}

func (p *parser) statement() []stmt {
	line := p.cur().line
	tag := p.ident()
	var s stmt
	switch tag {
	case "if":
		s = p.ifTag()
	case "for":
		s = p.forTag(line)
	case "set":
		s = p.setTag(line)
	case "macro":
		s = p.macroTag()
	case "call":
		s = p.callTag(line)
	case "filter":
		f := &filterStmt{line: line, filters: p.filterChain()}
		f.body = p.block("endfilter")
		s = f
	case "with":
		s = p.withTag(line)
	case "generation":
		g := &generationStmt{line: line}
		p.macroBody(&g.body, "endgeneration")
		s = g
	case "print":
		var out []stmt
		for p.cur().kind != tTagEnd {
			if len(out) > 0 {
				p.expect(tOp, ",")
			}
			out = append(out, &outStmt{line, p.cond()})
		}
		p.next()
		return out
	case "break", "continue":
		if p.loops == 0 {
			failParse(line, "{%% %s %%} outside a loop", tag)
		}
		p.expect(tTagEnd, "%}")
		if tag == "break" {
			return []stmt{breakStmt{}}
		}
		return []stmt{continueStmt{}}
	default:
		if slices.Contains(unsupported, tag) {
			failParse(line, "{%% %s %%} is not supported in chat templates", tag)
		}
		failParse(line, "unknown tag {%% %s %%}", tag)
	}
	return []stmt{s}
}

func (p *parser) ifTag() stmt {
	s := &ifStmt{}
	for {
		s.tests = append(s.tests, p.tuple(p.or))
		p.blockBegin()
		s.bodies = append(s.bodies, p.body("elif", "else", "endif"))
		p.next()
		switch p.ident() {
		case "elif":
			continue
		case "else":
			s.other = p.block("endif")
			return s
		}
		p.expect(tTagEnd, "%}")
		return s
	}
}

func (p *parser) forTag(line int) stmt {
	s := &forStmt{line: line, target: p.targets(false)}
	p.expect(tName, "in")
	s.iter = p.tuple(p.or)
	if p.skip(tName, "if") {
		s.cond = p.cond()
	}
	s.recursive = p.skip(tName, "recursive")
	p.blockBegin()
	outer := p.loops
	p.loops++
	s.body = p.body("else", "endfor")
	if p.loops = outer; s.recursive {
		p.loops = 0 // a recursive loop is a function of its own
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

// targets reads what is assigned to: a, or a, b, or (a, b), or ns.a if attributes are allowed.
func (p *parser) targets(attributes bool) target {
	line := p.cur().line
	items := []target{p.target(attributes)}
	for p.skip(tOp, ",") {
		if p.cur().kind == tTagEnd || p.is(tOp, ")") {
			return target{line: line, tuple: items, multi: true}
		}
		items = append(items, p.target(attributes))
	}
	if len(items) == 1 {
		return items[0]
	}
	return target{line: line, tuple: items, multi: true}
}

func (p *parser) target(attributes bool) target {
	line := p.cur().line
	if p.skip(tOp, "(") {
		defer p.leave(p.enter())
		if p.skip(tOp, ")") {
			return target{line: line, multi: true}
		}
		t := p.targets(false)
		p.expect(tOp, ")")
		return t
	}
	t := target{line: line, name: p.variable()}
	if attributes && p.skip(tOp, ".") {
		t.attr = p.ident()
	}
	return t
}

// variable reads a name that is assigned to.
func (p *parser) variable() *name {
	line := p.cur().line
	id := p.ident()
	if _, ok := constants[id]; ok || id == "loop" || id == "self" || slices.Contains(reserved, id) {
		failParse(line, "cannot assign to %q", id)
	}
	return &name{line: line, id: id}
}

func (p *parser) ident() string {
	if p.cur().kind != tName {
		p.fail("expected a name, found %s", p.cur())
	}
	return p.next().text
}

func (p *parser) setTag(line int) stmt {
	t := p.targets(true)
	if p.skip(tOp, "=") {
		s := &setStmt{line, t, p.tuple(p.cond)}
		p.expect(tTagEnd, "%}")
		return s
	}
	s := &setBlockStmt{line: line, target: t}
	if p.skip(tOp, "|") {
		s.filters = p.filterChain()
	}
	s.body = p.block("endset")
	return s
}

// filterChain reads filters that are applied to the text of a body.
func (p *parser) filterChain() *filterExpr {
	f := p.filter(nil)
	for p.skip(tOp, "|") {
		f = p.filter(f)
	}
	return f
}

func (p *parser) macroTag() stmt {
	s := &macroStmt{name: p.variable()}
	s.label = s.name.id
	p.parameters(&s.macroDef)
	p.macroBody(&s.macroDef, "endmacro")
	return s
}

func (p *parser) callTag(line int) stmt {
	s := &callStmt{line: line}
	if p.is(tOp, "(") {
		p.parameters(&s.body)
	}
	call, ok := p.cond().(*callExpr)
	if !ok {
		failParse(line, "{%% call %%} needs a call of a macro")
	}
	s.call = call
	p.macroBody(&s.body, "endcall")
	return s
}

func (p *parser) parameters(m *macroDef) {
	p.expect(tOp, "(")
	for !p.is(tOp, ")") {
		if len(m.params) > 0 {
			p.expect(tOp, ",")
		}
		param := p.variable()
		if slices.ContainsFunc(m.params, func(n *name) bool { return n.id == param.id }) {
			failParse(param.line, "the parameter %q appears twice", param.id)
		}
		m.params = append(m.params, param)
		if p.skip(tOp, "=") {
			m.defaults = append(m.defaults, p.cond())
		} else if len(m.defaults) > 0 {
			p.fail("a parameter without a default follows one with a default")
		}
	}
	p.next()
}

func (p *parser) macroBody(m *macroDef, end string) {
	loops := p.loops
	p.loops = 0
	m.body = p.block(end)
	p.loops = loops
}

func (p *parser) withTag(line int) stmt {
	s := &withStmt{line: line}
	for p.cur().kind != tTagEnd && !p.is(tOp, ":") {
		if len(s.targets) > 0 {
			p.expect(tOp, ",")
		}
		s.targets = append(s.targets, p.targets(false))
		p.expect(tOp, "=")
		s.values = append(s.values, p.cond())
	}
	s.body = p.block("endwith")
	return s
}
