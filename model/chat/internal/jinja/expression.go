package jinja

import "slices"

var constants = map[string]any{
	"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil,
}

// reserved words cannot be names. Jinja2 allows some of them in some places; no published template
// uses that.
var reserved = []string{"and", "else", "if", "in", "is", "not", "or", "self", "super"}

// parseTuple parses one item, or a tuple of items separated by commas. A tuple ends at the end of
// the tag or at a closing parenthesis.
func parseTuple(p *parser, item func(*parser) expr) expr {
	items := []expr{item(p)}
	for p.skip(tOp, ",") {
		if c := p.cur(); c.kind == tTagEnd || c.kind == tOutEnd || p.is(tOp, ")") {
			return &opExpr{op: "()", xs: items}
		}
		items = append(items, item(p))
	}
	if len(items) == 1 {
		return items[0]
	}
	return &opExpr{op: "()", xs: items}
}

// parseCond parses an expression. The operator with the lowest precedence is x if test else y.
func parseCond(p *parser) expr {
	defer p.leave(p.enter())
	unknown := len(p.unknown)
	x := parseOr(p)
	for p.skip(tName, "if") {
		c := &opExpr{op: "if", xs: []expr{parseOr(p), x}}
		if p.skip(tName, "else") {
			c.xs = append(c.xs, parseCond(p))
		}
		x, p.unknown = c, p.unknown[:unknown]
	}
	return x
}

func parseOr(p *parser) expr      { return parseBinary(p, tName, parseAnd, "or") }
func parseAnd(p *parser) expr     { return parseBinary(p, tName, parseNot, "and") }
func parseSum(p *parser) expr     { return parseBinary(p, tOp, parseConcat, "+", "-") }
func parseProduct(p *parser) expr { return parseBinary(p, tOp, parsePower, "*", "/", "//", "%") }
func parsePower(p *parser) expr   { return parseBinary(p, tOp, parseFiltered, "**") }

// parseBinary parses a chain of left-associative operators.
func parseBinary(p *parser, kind tokenKind, operand func(*parser) expr, ops ...string) expr {
	x := operand(p)
	for p.cur().kind == kind && slices.Contains(ops, p.cur().text) {
		t := p.next()
		x = &opExpr{t.line, t.text, []expr{x, operand(p)}}
	}
	return x
}

func parseNot(p *parser) expr {
	if p.skip(tName, "not") {
		defer p.leave(p.enter())
		return &opExpr{op: "not", xs: []expr{parseNot(p)}}
	}
	c := &compareExpr{line: p.cur().line, xs: []expr{parseSum(p)}}
	for {
		op := p.cur().text
		switch {
		case p.cur().kind == tOp && slices.Contains(comparisons, op), p.is(tName, "in"):
			p.next()
		case p.is(tName, "not") && p.peek().kind == tName && p.peek().text == "in":
			p.pos += 2
			op = "not in"
		case c.ops == nil:
			return c.xs[0]
		default:
			return c
		}
		c.ops, c.xs = append(c.ops, op), append(c.xs, parseSum(p))
	}
}

var comparisons = []string{"==", "!=", "<", "<=", ">", ">="}

func parseConcat(p *parser) expr {
	c := &opExpr{p.cur().line, "~", []expr{parseProduct(p)}}
	for p.skip(tOp, "~") {
		c.xs = append(c.xs, parseProduct(p))
	}
	if len(c.xs) == 1 {
		return c.xs[0]
	}
	return c
}

// parseFiltered parses an operand with its filters and tests, which bind tighter than every
// operator except a sign.
func parseFiltered(p *parser) expr {
	x := parseUnary(p)
	for {
		switch {
		case p.skip(tOp, "|"):
			x = parseFilter(p, x)
		case p.skip(tName, "is"):
			x = parseTest(p, x)
		case p.is(tOp, "("):
			x = &callExpr{p.cur().line, x, parseArguments(p)}
		default:
			return x
		}
	}
}

func parseUnary(p *parser) expr {
	defer p.leave(p.enter())
	if p.is(tOp, "-") || p.is(tOp, "+") {
		t := p.next()
		op := map[string]string{"-": "neg", "+": "pos"}[t.text]
		return parsePostfix(p, &opExpr{t.line, op, []expr{parseUnary(p)}})
	}
	return parsePostfix(p, parsePrimary(p))
}

func parsePrimary(p *parser) expr {
	t := p.next()
	v, isConstant := constants[t.text]
	switch {
	case t.kind == tName && isConstant:
		return &literal{v}
	case t.kind == tName && !slices.Contains(reserved, t.text):
		return p.see(t.text, false)
	case t.kind == tString:
		for p.cur().kind == tString {
			t.text += p.next().text
		}
		return &literal{lit(t.text)}
	case t.kind == tNumber:
		return &literal{t.value}
	case t.kind == tOp && t.text == "(":
		x := expr(&opExpr{op: "()"})
		if !p.is(tOp, ")") {
			x = parseTuple(p, parseCond)
		}
		p.expect(tOp, ")")
		return x
	case t.kind == tOp && t.text == "[":
		l := &opExpr{op: "[]"}
		parseSequence(p, "]", func() { l.xs = append(l.xs, parseCond(p)) })
		return l
	case t.kind == tOp && t.text == "{":
		d := &dictExpr{line: t.line}
		parseSequence(p, "}", func() {
			d.keys = append(d.keys, parseCond(p))
			p.expect(tOp, ":")
			d.values = append(d.values, parseCond(p))
		})
		return d
	}
	failParse(t.line, "%s is invalid or not supported here", t)
	return nil
}

// parseSequence parses items separated by commas up to the closing bracket. It allows a trailing
// comma.
func parseSequence(p *parser, closing string, item func()) {
	for !p.skip(tOp, closing) {
		item()
		if !p.skip(tOp, ",") {
			p.expect(tOp, closing)
			return
		}
	}
}

func parsePostfix(p *parser, x expr) expr {
	for {
		switch line := p.cur().line; {
		case p.is(tOp, "("):
			x = &callExpr{line, x, parseArguments(p)}
		case p.skip(tOp, "["):
			x = parseSubscript(p, line, x)
		case p.skip(tOp, "."):
			t := p.next()
			i, isIndex := t.value.(int64)
			switch {
			case t.kind == tName:
				x = &attrExpr{line, x, lit(t.text)}
			case isIndex:
				x = &opExpr{line, "item", []expr{x, &literal{i}}}
			default:
				failParse(t.line, "expected a name or an index after the dot, found %s", t)
			}
		default:
			return x
		}
	}
}

// parseSubscript parses x[key], x[from:to:step], or x[a, b], whose key is a tuple.
func parseSubscript(p *parser, line int, x expr) expr {
	var keys []expr
	for !p.skip(tOp, "]") {
		if len(keys) > 0 {
			p.expect(tOp, ",")
		}
		s := &sliceExpr{line: line, x: x}
		if !p.is(tOp, ":") {
			s.from = parseCond(p)
		}
		if !p.skip(tOp, ":") {
			keys = append(keys, s.from)
			continue
		}
		if !p.is(tOp, ":") && !p.is(tOp, "]") {
			s.to = parseCond(p)
		}
		if p.skip(tOp, ":") && !p.is(tOp, "]") {
			s.step = parseCond(p)
		}
		p.failIf(len(keys) > 0 || !p.skip(tOp, "]"), "a slice in a tuple of keys is not supported")
		return s
	}
	if len(keys) != 1 {
		keys = []expr{&opExpr{op: "()", xs: keys}}
	}
	return &opExpr{line, "item", []expr{x, keys[0]}}
}

func parseArguments(p *parser) (a arguments) {
	p.expect(tOp, "(")
	parseSequence(p, ")", func() {
		ordered := a.double == nil
		switch {
		case p.skip(tOp, "*"):
			ordered = ordered && a.star == nil
			a.star = parseCond(p)
		case p.skip(tOp, "**"):
			a.double = parseCond(p)
		case p.cur().kind == tName && p.peek().kind == tOp && p.peek().text == "=":
			id := lit(p.next().text)
			p.next()
			p.failIf(len(a.names) == maxNames, "more than %d named arguments", maxNames)
			p.failIf(slices.Contains(a.names, id), "the argument %q is given twice", id.s)
			a.names, a.named = append(a.names, id), append(a.named, parseCond(p))
		default:
			ordered = ordered && a.star == nil && a.names == nil
			a.pos = append(a.pos, parseCond(p))
		}
		p.failIf(!ordered, "the order of arguments must be positional, *args, keywords, **kwargs")
	})
	return a
}

func parseFilter(p *parser, x expr) *filterExpr {
	f := &filterExpr{line: p.cur().line, x: x, name: p.ident()}
	if f.f = filters[f.name]; f.f == nil {
		p.unknown = append(p.unknown, token{text: f.name, line: f.line})
	}
	if p.is(tOp, "(") {
		f.args = parseArguments(p)
	}
	return f
}

// parseTest parses a test after "is". A single argument needs no parentheses: x is divisibleby 3.
func parseTest(p *parser, x expr) expr {
	negate := p.skip(tName, "not")
	t := &testExpr{line: p.cur().line, x: x, name: p.ident()}
	if t.f = tests[t.name]; t.f == nil {
		p.unknown = append(p.unknown, token{text: t.name, line: t.line})
	}
	c := p.cur()
	switch {
	case p.is(tOp, "("):
		t.args = parseArguments(p)
	case c.kind == tName && !slices.Contains([]string{"else", "or", "and"}, c.text),
		c.kind == tString, c.kind == tNumber, p.is(tOp, "["), p.is(tOp, "{"):
		t.args.pos = []expr{parsePostfix(p, parsePrimary(p))}
	}
	if negate {
		return &opExpr{op: "not", xs: []expr{t}}
	}
	return t
}
