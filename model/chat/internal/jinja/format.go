package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// spec is what a conversion asks for. Of printf's and str.format's it has what templates use.
type spec struct {
	fill      string
	align     byte // < > ^ =, or 0 for the type's own
	sign      byte // + or space, or 0
	width     int
	precision int // -1 if not given
	typ       byte
}

// percent is text % values.
func (r *run) percent(text str, values any) str {
	if text.safe {
		r.fail("formatting the result of the filter safe is not supported")
	}
	named, isDict := values.(*Dict)
	given := []any{values}
	if t, ok := values.(*Tuple); ok {
		given = t.items
	}
	used := 0
	b := r.builder()
	rest := text
	for {
		i := r.indexIn(rest.s, "%")
		if i < 0 {
			break
		}
		b.write(rest.cut(0, i))
		rest = rest.cut(i+1, len(rest.s))
		if strings.HasPrefix(rest.s, "%") {
			b.write(rest.cut(0, 1))
			rest = rest.cut(1, len(rest.s))
			continue
		}
		var value any
		byName := strings.HasPrefix(rest.s, "(")
		if byName {
			end := strings.IndexByte(rest.s, ')')
			if end < 0 || !isDict {
				r.fail("format requires a mapping")
			}
			v, ok := r.lookup(named, lit(rest.s[1:end]))
			if !ok {
				r.fail("the format needs the key %q", rest.s[1:end])
			}
			value, rest = v, rest.cut(end+1, len(rest.s))
		}
		s, n := r.percentSpec(rest.s)
		rest = rest.cut(n, len(rest.s))
		if !byName {
			if used == len(given) {
				r.fail("not enough arguments for format string")
			}
			value = given[used]
			used++
		}
		b.write(r.convert(value, s))
	}
	b.write(rest)
	if !isDict && used < len(given) {
		r.fail("not all arguments converted during string formatting")
	}
	return b.str()
}

// percentSpec reads flags, width, precision and type, and returns their length.
func (r *run) percentSpec(in string) (spec, int) {
	s, zero := spec{fill: " ", align: '>', precision: -1}, false
	rest := in
	for ; rest != "" && strings.IndexByte("-+ 0", rest[0]) >= 0; rest = rest[1:] {
		switch c := rest[0]; c {
		case '-':
			s.align = '<'
		case '0':
			zero = true
		default:
			s.sign = max(s.sign, c) // + is greater than a space and wins
		}
	}
	s.width, rest = r.formatSize(rest, 0)
	if strings.HasPrefix(rest, ".") {
		s.precision, rest = r.formatSize(rest[1:], 0)
	}
	if rest == "" || strings.IndexByte("srdifeg", rest[0]) < 0 {
		r.fail("the format %q is not supported", clip("%"+in[:min(len(in), 20)]))
	}
	s.typ = rest[0]
	if zero && s.align == '>' && s.typ != 's' && s.typ != 'r' {
		s.fill, s.align = "0", '='
	}
	if s.typ == 'i' {
		s.typ = 'd'
	}
	return s, len(in) - len(rest) + 1
}

// maxFormatWidth bounds a width or a precision.
const maxFormatWidth = 1 << 12

func (r *run) formatSize(in string, otherwise int) (int, string) {
	n := 0
	for n < len(in) && isDigit(in[n]) {
		n++
	}
	if n == 0 {
		return otherwise, in
	}
	v, err := strconv.Atoi(in[:n])
	if err != nil || v > maxFormatWidth {
		r.limit("a width of %s in a format; the limit is %d", in[:n], maxFormatWidth)
	}
	return v, in[n:]
}

// format is text.format(...). Fields name an argument by position or keyword.
func (r *run) format(text str, a *args) str {
	if text.safe {
		r.fail("formatting the result of the filter safe is not supported")
	}
	b := r.builder()
	auto := 0
	for rest := text; ; {
		i := strings.IndexAny(rest.s, "{}")
		if i < 0 {
			b.write(rest)
			return b.str()
		}
		r.tick(1 + i/64)
		b.write(rest.cut(0, i))
		rest = rest.cut(i, len(rest.s))
		if strings.HasPrefix(rest.s, "{{") || strings.HasPrefix(rest.s, "}}") {
			b.write(rest.cut(0, 1))
			rest = rest.cut(2, len(rest.s))
			continue
		}
		end := strings.IndexAny(rest.s[1:], "{}") + 1
		if rest.s[0] == '}' || end == 0 || rest.s[end] == '{' {
			r.fail("a single { or }, or a field in a field, in a format string is not supported")
		}
		name, form, _ := strings.Cut(rest.s[1:end], ":")
		rest = rest.cut(end+1, len(rest.s))
		v := r.field(name, a, &auto)
		if form == "" {
			b.write(r.text(v))
			continue
		}
		s := r.parseSpec(form, v)
		b.write(r.convert(v, s))
	}
}

func (r *run) field(name string, a *args, auto *int) any {
	i, err := strconv.Atoi(name)
	switch {
	case name == "" && *auto >= 0:
		i, err = *auto, nil
		*auto++
	case err == nil && *auto <= 0:
		*auto = -1
	case name == "" || err == nil:
		r.fail("a format string cannot both number its fields and leave it to Python")
	}
	switch {
	case strings.ContainsAny(name, ".[!"):
		r.fail("the format field {%s} is not supported", name)
	case err == nil && i >= 0 && i < len(a.pos):
		return a.pos[i]
	case err == nil:
		r.fail("Replacement index %d out of range for positional args tuple", i)
	}
	j, ok := a.find(name)
	if !ok {
		r.fail("the format string needs %q", name)
	}
	return a.named[j]
}

// parseSpec reads [[fill]align][sign][0][width][.precision][type].
func (r *run) parseSpec(form string, v any) spec {
	s := spec{fill: " ", precision: -1}
	_, width := utf8.DecodeRuneInString(form)
	isAlign := func(at int) bool { return at < len(form) && strings.IndexByte("<>^=", form[at]) >= 0 }
	rest := form
	if isAlign(width) {
		s.fill, s.align, rest = form[:width], form[width], form[width+1:]
	} else if isAlign(0) {
		s.align, rest = form[0], form[1:]
	}
	if rest != "" && strings.IndexByte("+- ", rest[0]) >= 0 {
		s.sign, rest = rest[0], rest[1:]
	}
	if strings.HasPrefix(rest, "0") {
		if rest = rest[1:]; s.align == 0 {
			s.fill, s.align = "0", '='
		}
	}
	s.width, rest = r.formatSize(rest, 0)
	if strings.HasPrefix(rest, ".") {
		s.precision, rest = r.formatSize(rest[1:], -1)
	}
	text, isString := v.(str)
	_, isInt := v.(int64)
	_, isFloat := v.(float64)
	switch {
	case isString && !text.safe && (rest == "" || rest == "s") && s.sign == 0 && s.align != '=':
		s.typ = 's'
	case isInt && (rest == "" || rest == "d") && s.precision < 0:
		s.typ = 'd'
	case (isInt || isFloat) && (rest == "f" || rest == "e" || rest == "g"):
		s.typ = rest[0]
	default:
		r.fail("the format %q of a %s is not supported", form, typeName(v))
	}
	if s.align == 0 && s.typ == 's' {
		s.align = '<'
	}
	return s
}

// convert writes v as s asks.
func (r *run) convert(v any, s spec) str {
	switch s.typ {
	case 's', 'r':
		text := str{}
		if s.typ == 's' {
			text = r.text(v)
		} else {
			b := r.builder()
			r.repr(b, v)
			text = b.str()
		}
		if s.precision >= 0 {
			text = text.cut(0, r.offset(text.s, s.precision))
		}
		return r.align("", text, s)
	case 'd':
		if f, ok := v.(float64); ok && !math.IsInf(f, 0) && !math.IsNaN(f) {
			v, _ = big.NewFloat(f).Int(nil)
		}
		i, ok := asBig(v)
		if !ok || s.precision >= 0 {
			r.defined(v)
			r.fail("%%d format of a %s is not supported", typeName(v))
		}
		return r.number(i.Sign() < 0, new(big.Int).Abs(i).String(), s)
	}
	f, ok := asFloat(v)
	if !ok {
		r.defined(v)
		r.fail("must be real number, not %s", typeName(v))
	}
	return r.number(math.Signbit(f) && !math.IsNaN(f), formatFloat(math.Abs(f), s), s)
}

func (r *run) number(negative bool, digits string, s spec) str {
	sign := ""
	switch {
	case negative:
		sign = "-"
	case s.sign == '+' || s.sign == ' ':
		sign = string(s.sign)
	}
	return r.align(sign, lit(digits), s)
}

func formatFloat(f float64, s spec) string {
	precision := s.precision
	if precision < 0 {
		precision = 6
	}
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 0):
		return "inf"
	case s.typ == 'f' || s.typ == 'e':
		return strconv.FormatFloat(f, s.typ, precision, 64)
	}
	// g keeps that many digits and drops zeros at the end. The exponent decides the form.
	precision = max(precision, 1)
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', precision-1, 64), "e")
	e, _ := strconv.Atoi(exponent) // FormatFloat writes a number there
	if e < -4 || e >= precision {
		return trimZeros(mantissa) + "e" + exponent
	}
	return trimZeros(strconv.FormatFloat(f, 'f', precision-1-e, 64))
}

func trimZeros(s string) string {
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

func (r *run) align(sign string, body str, s spec) str {
	n := max(0, s.width-len(sign)-r.runeCount(body.s))
	fill := func(n int) string { return strings.Repeat(s.fill, n) }
	b := r.builder()
	switch s.align {
	case '<':
		b.raw(sign)
		b.write(body)
		b.raw(fill(n))
	case '^':
		b.raw(fill(n/2) + sign)
		b.write(body)
		b.raw(fill(n - n/2))
	case '=':
		b.raw(sign + fill(n))
		b.write(body)
	default:
		b.raw(fill(n) + sign)
		b.write(body)
	}
	return b.str()
}
