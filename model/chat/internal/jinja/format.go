package jinja

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxFormatWidth bounds a width or a precision.
const maxFormatWidth = 1 << 16

// spec is what a conversion asks for, in the words of str.format.
type spec struct {
	fill      string
	align     byte // < > ^ =, or 0 for the type's own
	sign      byte // + - or space
	alternate bool
	width     int
	group     string // "," or "_"
	precision int    // -1 where not given
	typ       byte
}

// percent is text % values.
func (r *run) percent(text string, values any) string {
	named, isDict := values.(*Dict)
	given := []any{values}
	if t, ok := values.(*Tuple); ok {
		given = t.Items
	}
	used := 0
	take := func() any {
		if used >= len(given) {
			r.fail("not enough arguments for format string")
		}
		used++
		return given[used-1]
	}
	var b strings.Builder
	for {
		plain, rest, found := strings.Cut(text, "%")
		r.charge(len(plain))
		b.WriteString(plain)
		if !found {
			break
		}
		if strings.HasPrefix(rest, "%") {
			b.WriteByte('%')
			text = rest[1:]
			continue
		}
		var value any
		byName := false
		if strings.HasPrefix(rest, "(") {
			key, after, ok := strings.Cut(rest[1:], ")")
			if !ok || !isDict {
				r.fail("format requires a mapping")
			}
			v, ok := named.Get(key)
			if !ok {
				r.fail("the format string names %q, which is not given", key)
			}
			value, byName, rest = v, true, after
			used = len(given)
		}
		s := spec{fill: " ", precision: -1}
		left, zero := false, false
		for ; rest != "" && strings.IndexByte("-+ 0#", rest[0]) >= 0; rest = rest[1:] {
			switch rest[0] {
			case '-':
				left = true
			case '0':
				zero = true
			case '#':
				s.alternate = true
			case '+':
				s.sign = '+'
			case ' ':
				if s.sign == 0 {
					s.sign = ' '
				}
			}
		}
		size := func(in string) (int, string) {
			if strings.HasPrefix(in, "*") {
				n, ok := asInt(take())
				if !ok || n < 0 || n > maxFormatWidth {
					r.fail("* in a format string wants an integer from 0 to %d", maxFormatWidth)
				}
				return int(n), in[1:]
			}
			return r.formatSize(in)
		}
		s.width, rest = size(rest)
		if strings.HasPrefix(rest, ".") {
			s.precision, rest = size(rest[1:])
		}
		rest = strings.TrimLeft(rest, "hlL")
		if rest == "" {
			r.fail("incomplete format")
		}
		s.typ, text = rest[0], rest[1:]
		if !byName {
			value = take()
		}
		numeric := strings.IndexByte("diufFeEgGxXo", s.typ) >= 0
		switch {
		case left:
			s.align = '<'
		case zero && numeric:
			s.fill, s.align = "0", '='
		default:
			s.align = '>'
		}
		b.WriteString(r.percentValue(value, s))
	}
	if !isDict && used < len(given) {
		r.fail("not all arguments converted during string formatting")
	}
	return b.String()
}

func (r *run) percentValue(v any, s spec) string {
	switch s.typ {
	case 's', 'r', 'a':
		text := r.str(v)
		if s.typ != 's' {
			var b strings.Builder
			r.repr(&b, v)
			text = b.String()
		}
		s.typ = 's'
		return r.formatString(text, s)
	case 'c':
		if i, ok := asInt(v); ok {
			v = string(rune(i))
		}
		s.typ, s.precision = 's', -1
		if c, ok := v.(string); ok && runeCount(c) == 1 {
			return r.formatString(c, s)
		}
		r.fail("%%c requires int or char")
	case 'd', 'i', 'u':
		s.typ = 'd'
		if f, ok := v.(float64); ok {
			if math.Abs(f) >= 1<<63 || math.IsNaN(f) {
				r.fail("%%d: the number does not fit 64 bits")
			}
			v = int64(f)
		}
	}
	if _, ok := asFloat(v); !ok || strings.IndexByte("dfFeEgGxXo", s.typ) < 0 {
		r.defined(v)
		r.fail("%%%c format: a real number is required, not %s", s.typ, typeName(v))
	}
	if _, ok := asInt(v); ok && s.precision >= 0 && strings.IndexByte("dxXo", s.typ) >= 0 {
		r.fail("a precision for %%%c is not supported", s.typ)
	}
	if s.alternate && s.typ != 'x' && s.typ != 'X' && s.typ != 'o' {
		r.fail("# with %%%c is not supported", s.typ)
	}
	return r.formatNumber(v, s)
}

// format is text.format(...). Fields name an argument; attributes and items of it are not taken.
func (r *run) format(text string, a args) string {
	var b strings.Builder
	next := 0
	for text != "" {
		i := strings.IndexAny(text, "{}")
		if i < 0 {
			i = len(text)
		}
		r.charge(i + 1)
		b.WriteString(text[:i])
		text = text[i:]
		switch {
		case text == "":
		case strings.HasPrefix(text, "{{"), strings.HasPrefix(text, "}}"):
			b.WriteByte(text[0])
			text = text[2:]
		case text[0] == '}':
			r.fail("Single '}' encountered in format string")
		default:
			end := strings.IndexAny(text[1:], "{}")
			if end < 0 || text[1+end] == '{' {
				r.fail("a field of a format string is not closed, or holds another field, which is not supported")
			}
			value := r.field(text[1:1+end], a, &next)
			r.charge(len(value))
			b.WriteString(value)
			text = text[end+2:]
		}
	}
	return b.String()
}

// field is one {name!conversion:spec}.
func (r *run) field(field string, a args, next *int) string {
	field, form, _ := strings.Cut(field, ":")
	field, conversion, converted := strings.Cut(field, "!")
	var v any
	switch i, err := strconv.Atoi(field); {
	case strings.ContainsAny(field, ".["):
		r.fail("the format field {%s} looks into its argument, which is not supported", field)
	case field == "" || err == nil:
		if field == "" {
			i = *next
			*next++
		}
		if i < 0 || i >= len(a.pos) {
			r.fail("Replacement index %d out of range for positional args tuple", i)
		}
		v = a.pos[i]
	default:
		found := false
		for j, n := range a.names {
			if n == field {
				v, found = a.named[j], true
			}
		}
		if !found {
			r.fail("the format string names %q, which is not given", field)
		}
	}
	if converted {
		switch conversion {
		case "s":
			v = r.str(v)
		case "r":
			var b strings.Builder
			r.repr(&b, v)
			v = b.String()
		default:
			r.fail("the conversion !%s is not supported", conversion)
		}
	}
	s := r.parseSpec(form)
	if form == "" {
		return r.str(v)
	}
	switch x := v.(type) {
	case string:
		if s.typ == 0 {
			s.typ = 's'
		}
		if s.typ != 's' || s.sign != 0 || s.group != "" || s.align == '=' || s.alternate {
			r.fail("the format %q is not one for a string", form)
		}
		return r.formatString(x, s)
	case bool:
		if s.typ == 0 {
			s.typ = 'd'
		}
	case int64:
		if s.typ == 0 {
			s.typ = 'd'
		}
	case float64:
		if s.typ == 0 || strings.IndexByte("dxXobc", s.typ) >= 0 {
			r.fail("the format %q for a float is not supported, write one of f, e, g or %%", form)
		}
	default:
		r.fail("unsupported format string passed to %s.__format__", typeName(v))
	}
	if strings.IndexByte("dxXobfFeEgG%", s.typ) < 0 || s.alternate || s.precision >= 0 && strings.IndexByte("dxXob", s.typ) >= 0 {
		r.fail("the format %q is not supported", form)
	}
	return r.formatNumber(v, s)
}

// parseSpec reads [[fill]align][sign][#][0][width][group][.precision][type].
func (r *run) parseSpec(form string) spec {
	s := spec{fill: " ", precision: -1}
	_, width := utf8.DecodeRuneInString(form)
	isAlign := func(at int) bool { return at < len(form) && strings.IndexByte("<>^=", form[at]) >= 0 }
	rest := form
	if form != "" && isAlign(width) {
		s.fill, s.align, rest = form[:width], form[width], form[width+1:]
	} else if isAlign(0) {
		s.align, rest = form[0], form[1:]
	}
	if rest != "" && strings.IndexByte("+- ", rest[0]) >= 0 {
		s.sign, rest = rest[0], rest[1:]
	}
	if strings.HasPrefix(rest, "#") {
		s.alternate, rest = true, rest[1:]
	}
	if strings.HasPrefix(rest, "0") && s.align == 0 {
		s.fill, s.align, rest = "0", '=', rest[1:]
	}
	s.width, rest = r.formatSize(rest)
	if rest != "" && (rest[0] == ',' || rest[0] == '_') {
		s.group, rest = rest[:1], rest[1:]
	}
	if strings.HasPrefix(rest, ".") {
		s.precision, rest = r.formatSize(rest[1:])
	}
	if len(rest) > 1 || s.group != "" && s.fill == "0" {
		r.fail("the format %q is not supported", form)
	}
	if rest != "" {
		s.typ = rest[0]
	}
	return s
}

func (r *run) formatSize(in string) (int, string) {
	n := 0
	for n < len(in) && in[n] >= '0' && in[n] <= '9' {
		n++
	}
	if n == 0 {
		return 0, in
	}
	v, err := strconv.Atoi(in[:n])
	if err != nil || v > maxFormatWidth {
		r.limit("a width of %s in a format string, at most %d is taken", in[:n], maxFormatWidth)
	}
	return v, in[n:]
}

func (r *run) formatString(text string, s spec) string {
	if s.precision >= 0 && runeCount(text) > s.precision {
		text = runeSlice(text, 0, s.precision)
	}
	if s.align == 0 {
		s.align = '<'
	}
	return r.align("", text, s)
}

// formatNumber writes a number whose type and precision have been checked.
func (r *run) formatNumber(v any, s spec) string {
	var body string
	i, isInt := asInt(v)
	base := map[byte]int{'d': 10, 'x': 16, 'X': 16, 'o': 8, 'b': 2}[s.typ]
	negative := false
	switch {
	case base > 0:
		if !isInt {
			r.fail("the format %%%c of %s beyond 64 bits, or not whole, is not supported", s.typ, typeName(v))
		}
		negative = i < 0
		body = strings.TrimPrefix(strconv.FormatInt(i, base), "-")
		if s.typ == 'X' {
			body = strings.ToUpper(body)
		}
	default:
		f, _ := asFloat(v)
		negative = math.Signbit(f) && !math.IsNaN(f)
		body = formatFloat(math.Abs(f), s)
	}
	if s.group != "" {
		body = group(body, s.group)
	}
	sign := ""
	switch {
	case negative:
		sign = "-"
	case s.sign == '+' || s.sign == ' ':
		sign = string(s.sign)
	}
	if s.alternate {
		sign += map[byte]string{'x': "0x", 'X': "0X", 'o': "0o"}[s.typ]
	}
	if s.align == 0 {
		s.align = '>'
	}
	return r.align(sign, body, s)
}

func formatFloat(f float64, s spec) string {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		text := map[bool]string{true: "nan", false: "inf"}[math.IsNaN(f)]
		if s.typ == 'F' || s.typ == 'E' || s.typ == 'G' {
			text = strings.ToUpper(text)
		}
		return text
	}
	precision := s.precision
	if precision < 0 {
		precision = 6
	}
	switch s.typ {
	case '%':
		return strconv.FormatFloat(f*100, 'f', precision, 64) + "%"
	case 'f', 'F':
		return strconv.FormatFloat(f, 'f', precision, 64)
	case 'e', 'E':
		return strconv.FormatFloat(f, s.typ, precision, 64)
	}
	// g keeps that many digits and drops zeros at the end; the exponent after rounding decides the form.
	precision = max(precision, 1)
	text := strconv.FormatFloat(f, 'e', precision-1, 64)
	mantissa, exponent, _ := strings.Cut(text, "e")
	if e, _ := strconv.Atoi(exponent); e < -4 || e >= precision { // FormatFloat writes a number there
		text = trimZeros(mantissa) + "e" + exponent
	} else {
		text = trimZeros(strconv.FormatFloat(f, 'f', precision-1-e, 64))
	}
	if s.typ == 'G' {
		text = strings.ToUpper(text)
	}
	return text
}

func trimZeros(s string) string {
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// group puts a mark between thousands.
func group(body, mark string) string {
	n := strings.IndexFunc(body, func(c rune) bool { return c < '0' || c > '9' })
	if n < 0 {
		n = len(body)
	}
	var b strings.Builder
	for i := range n {
		if i > 0 && (n-i)%3 == 0 {
			b.WriteString(mark)
		}
		b.WriteByte(body[i])
	}
	return b.String() + body[n:]
}

func (r *run) align(sign, body string, s spec) string {
	n := max(0, s.width-runeCount(sign)-runeCount(body))
	r.charge(len(body) + n*len(s.fill) + 2)
	fill := func(n int) string { return strings.Repeat(s.fill, n) }
	switch s.align {
	case '<':
		return sign + body + fill(n)
	case '^':
		return fill(n/2) + sign + body + fill(n-n/2)
	case '=':
		return sign + fill(n) + body
	}
	return fill(n) + sign + body
}
