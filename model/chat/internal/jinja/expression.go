package jinja

import "slices"

var constants = map[string]any{
	"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil,
}

// reserved words are operators. Jinja2 takes some of them for names; no template relies on it.
var reserved = []string{"and", "else", "if", "in", "is", "not", "or"}

// tuple reads an item, or several with commas that make a tuple. They end at the end of the tag or
// at a closing parenthesis.
func (p *parser) tuple(item func() expr) expr {
	var items []expr
	for {
		c := p.cur()
		if c.kind == tTagEnd || c.kind == tOutEnd || p.is(tOp, ")") {
			if len(items) == 0 {
				p.fail("expected an expression, found %s", c)
			}
			return &tupleExpr{items}
		}
		items = append(items, item())
		if !p.skip(tOp, ",") {
			break
		}
	}
	if len(items) == 1 {
		return items[0]
	}
	return &tupleExpr{items}
}

// cond reads an expression: x if test else y, and all that binds tighter.
func (p *parser) cond() expr {
	defer p.leave(p.enter())
	x := p.or()
	for p.skip(tName, "if") {
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
	for p.skip(tName, "or") {
		x = &logicExpr{false, x, p.and()}
	}
	return x
}

func (p *parser) and() expr {
	x := p.not()
	for p.skip(tName, "and") {
		x = &logicExpr{true, x, p.not()}
	}
	return x
}

func (p *parser) not() expr {
	n := 0
	for p.is(tName, "not") {
		p.next()
		n++
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
		case p.cur().kind == tOp && slices.Contains(comparisons, op), p.is(tName, "in"):
			p.next()
		case p.is(tName, "not") && p.peek().kind == tName && p.peek().text == "in":
			p.pos += 2
			op = "not in"
		case ops == nil:
			return x
		default:
			return &compareExpr{line, x, ops}
		}
		ops = append(ops, comparison{op, p.sum()})
	}
}

var comparisons = []string{"==", "!=", "<", "<=", ">", ">="}

// binary reads operands joined by left-associative operators.
func (p *parser) binary(operand func() expr, ops ...string) expr {
	x := operand()
	for p.cur().kind == tOp && slices.Contains(ops, p.cur().text) {
		t := p.next()
		x = &binaryExpr{t.line, t.text, x, operand()}
	}
	return x
}

func (p *parser) sum() expr { return p.binary(p.concat, "+", "-") }

func (p *parser) concat() expr {
	x := p.product()
	if !p.is(tOp, "~") {
		return x
	}
	c := &concatExpr{p.cur().line, []expr{x}}
	for p.skip(tOp, "~") {
		c.parts = append(c.parts, p.product())
	}
	return c
}

func (p *parser) product() expr { return p.binary(p.power, "*", "/", "//", "%") }

func (p *parser) power() expr { return p.binary(p.filtered, "**") }

// filtered reads an operand with its filters and tests, which bind tighter than every operator
// but a sign.
func (p *parser) filtered() expr {
	x := p.unary()
	for {
		switch {
		case p.skip(tOp, "|"):
			x = p.filter(x)
		case p.skip(tName, "is"):
			x = p.test(x)
		case p.is(tOp, "("):
			x = p.call(x)
		default:
			return x
		}
	}
}

func (p *parser) unary() expr {
	defer p.leave(p.enter())
	var x expr
	if p.is(tOp, "-") || p.is(tOp, "+") {
		t := p.next()
		x = &unaryExpr{t.line, t.text == "-", p.unary()}
	} else {
		x = p.primary()
	}
	return p.postfix(x)
}

func (p *parser) primary() expr {
	t := p.cur()
	switch t.kind {
	case tName:
		if v, ok := constants[t.text]; ok {
			p.next()
			return &literal{v}
		}
		if slices.Contains(reserved, t.text) {
			p.fail("expected a value, found %s: it is not supported as a name", t)
		}
		if t.text == "self" || t.text == "super" {
			p.fail("%q is not supported in chat templates", t.text)
		}
		p.next()
		return &name{line: t.line, id: t.text}
	case tString:
		s := p.next().text
		for p.cur().kind == tString {
			s += p.next().text
		}
		return &literal{lit(s)}
	case tNumber:
		return &literal{p.next().value}
	case tOp:
		switch p.next(); t.text {
		case "(":
			x := expr(&tupleExpr{})
			if !p.is(tOp, ")") {
				x = p.tuple(p.cond)
			}
			p.expect(tOp, ")")
			return x
		case "[":
			l := &listExpr{}
			p.sequence("]", func() { l.items = append(l.items, p.cond()) })
			return l
		case "{":
			d := &dictExpr{line: t.line}
			p.sequence("}", func() {
				d.keys = append(d.keys, p.cond())
				p.expect(tOp, ":")
				d.values = append(d.values, p.cond())
			})
			return d
		}
	}
	failParse(t.line, "expected a value, found %s", t)
	return nil
}

// sequence reads items between commas up to the closing bracket. One comma may trail.
func (p *parser) sequence(closing string, item func()) {
	for !p.skip(tOp, closing) {
		item()
		if !p.skip(tOp, ",") {
			p.expect(tOp, closing)
			return
		}
	}
}

func (p *parser) postfix(x expr) expr {
	for p.cur().kind == tOp {
		switch p.cur().text {
		case ".":
			line := p.next().line
			switch t := p.next(); t.kind {
			case tName:
				x = &attrExpr{line, x, lit(t.text)}
			case tNumber:
				if _, isFloat := t.value.(float64); isFloat {
					failParse(t.line, "expected a name or an index, found %s", t)
				}
				x = &itemExpr{line, x, &literal{t.value}}
			default:
				failParse(t.line, "expected a name after the dot, found %s", t)
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

// subscript reads x[key], x[from:to:step], or x[a, b] with a tuple for key.
func (p *parser) subscript(x expr) expr {
	line := p.next().line
	var keys []expr
	for !p.is(tOp, "]") {
		if len(keys) > 0 {
			p.expect(tOp, ",")
		}
		if s := p.slice(line, x); s != nil {
			if len(keys) > 0 || !p.is(tOp, "]") {
				p.fail("a slice among several keys is not supported")
			}
			p.next()
			return s
		}
		keys = append(keys, p.cond())
		if p.is(tOp, ":") {
			s := p.bounds(&sliceExpr{line: line, x: x, from: keys[0]})
			if len(keys) > 1 || !p.is(tOp, "]") {
				p.fail("a slice among several keys is not supported")
			}
			p.next()
			return s
		}
	}
	p.next()
	if len(keys) == 1 {
		return &itemExpr{line, x, keys[0]}
	}
	return &itemExpr{line, x, &tupleExpr{keys}}
}

// slice reads a slice that begins with its colon, or returns nil.
func (p *parser) slice(line int, x expr) expr {
	if !p.is(tOp, ":") {
		return nil
	}
	return p.bounds(&sliceExpr{line: line, x: x})
}

func (p *parser) bounds(s *sliceExpr) expr {
	p.expect(tOp, ":")
	if !p.is(tOp, ":") && !p.is(tOp, "]") {
		s.to = p.cond()
	}
	if p.skip(tOp, ":") && !p.is(tOp, "]") {
		s.step = p.cond()
	}
	return s
}

func (p *parser) call(f expr) expr {
	return &callExpr{p.cur().line, f, p.arguments()}
}

func (p *parser) arguments() arguments {
	p.expect(tOp, "(")
	var a arguments
	p.sequence(")", func() {
		order := func(ok bool) {
			if !ok {
				p.fail("an argument is in a place where it may not be")
			}
		}
		switch {
		case p.skip(tOp, "*"):
			order(a.star == nil && a.double == nil)
			a.star = p.cond()
		case p.skip(tOp, "**"):
			order(a.double == nil)
			a.double = p.cond()
		case p.cur().kind == tName && p.peek().kind == tOp && p.peek().text == "=":
			order(a.double == nil)
			id := p.next().text
			p.next()
			if slices.Contains(a.names, lit(id)) {
				p.fail("the argument %q is given twice", id)
			}
			a.names = append(a.names, lit(id))
			a.named = append(a.named, p.cond())
		default:
			order(a.star == nil && a.double == nil && len(a.names) == 0)
			a.pos = append(a.pos, p.cond())
		}
	})
	return a
}

func (p *parser) filter(x expr) *filterExpr {
	f := &filterExpr{line: p.cur().line, x: x, name: p.dotted()}
	if p.is(tOp, "(") {
		f.args = p.arguments()
	}
	return f
}

func (p *parser) dotted() string {
	id := p.ident()
	for p.skip(tOp, ".") {
		id += "." + p.ident()
	}
	return id
}

// test reads what follows "is". One argument may stand without brackets: x is divisibleby 3.
func (p *parser) test(x expr) expr {
	t := &testExpr{line: p.cur().line, x: x}
	negate := p.skip(tName, "not")
	t.name = p.dotted()
	c := p.cur()
	switch {
	case p.is(tOp, "("):
		t.args = p.arguments()
	case c.kind == tName && !slices.Contains([]string{"else", "or", "and"}, c.text),
		c.kind == tString, c.kind == tNumber, p.is(tOp, "["), p.is(tOp, "{"):
		if p.is(tName, "is") {
			p.fail("tests cannot be chained with is")
		}
		t.args.pos = []expr{p.postfix(p.primary())}
	}
	if negate {
		return &notExpr{t}
	}
	return t
}
