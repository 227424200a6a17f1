package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

type filter = func(r *run, x any, a *args) any

// filters are those of Jinja2. It is filled once by init, because the filters that apply others
// refer to it.
var filters map[string]filter

// unsupportedFilters exist in Jinja2, so a template that does not reach them can be rendered.
var unsupportedFilters = map[string]bool{
	"filesizeformat": true, "pprint": true, "random": true, "striptags": true, "urlize": true,
	"wordwrap": true, "xmlattr": true, "urlencode": true,
}

func init() {
	filters = map[string]filter{
		"abs": absFilter, "attr": attrFilter, "batch": batch, "capitalize": onText("capitalize"),
		"center": center, "count": lengthFilter, "d": defaultFilter, "default": defaultFilter,
		"dictsort": dictsort, "e": escapeFilter, "escape": escapeFilter, "first": first,
		"float": floatFilter, "forceescape": forceEscape, "format": formatFilter,
		"groupby": groupby, "indent": indent, "int": intFilter, "items": itemsFilter,
		"join": joinFilter, "last": last, "length": lengthFilter, "list": listFilter,
		"lower": onText("lower"), "map": mapFilter, "max": extreme(1), "min": extreme(-1),
		"reject": choose(false, false), "rejectattr": choose(false, true),
		"replace": replaceFilter, "reverse": reverse, "round": round, "safe": safe,
		"select": choose(true, false), "selectattr": choose(true, true), "slice": slice,
		"sort": sortFilter, "string": stringFilter, "sum": sum, "title": titleFilter,
		"tojson": tojson, "trim": trim, "truncate": truncate, "unique": unique,
		"upper": onText("upper"), "wordcount": wordcount,
	}
}

// onText makes a filter of a string method without arguments.
func onText(method string) filter {
	return func(r *run, x any, a *args) any {
		r.none(a)
		return stringMethods[method](r, r.soft(x), a)
	}
}

func absFilter(r *run, x any, a *args) any {
	r.none(a)
	switch v := x.(type) {
	case float64:
		return math.Abs(v)
	case *big.Int:
		return new(big.Int).Abs(v)
	}
	i, ok := asInt(x)
	if !ok {
		r.fail("bad operand type for abs(): '%s'", typeName(x))
	}
	if i < 0 {
		return r.unary(true, i)
	}
	return i
}

// attrFilter finds attributes only, no items.
func attrFilter(r *run, x any, a *args) any {
	key := r.string(a, r.take(a, 1, "name")[0], "")
	if v := r.attribute(x, key.s); v != nil {
		return *v
	}
	return lacks(x, key)
}

func center(r *run, x any, a *args) any {
	width := r.integer(a, r.take(a, 0, "width")[0], 80)
	return r.pad(r.soft(x), width, lit(" "), "center")
}

func lengthFilter(r *run, x any, a *args) any {
	r.none(a)
	n, ok := r.length(x)
	if !ok {
		r.fail("object of type '%s' has no len()", typeName(x))
	}
	return int64(n)
}

func defaultFilter(r *run, x any, a *args) any {
	v := r.take(a, 0, "default_value", "boolean")
	if isUndefined(x) || r.flag(v[1], false) && !r.truth(x) {
		if !given(v[0]) {
			return str{}
		}
		return v[0]
	}
	return x
}

func escapeFilter(r *run, x any, a *args) any {
	r.none(a)
	return r.escape(r.soft(x))
}

func forceEscape(r *run, x any, a *args) any {
	r.none(a)
	return r.escape(r.text(x))
}

var htmlEscapes = strings.NewReplacer(
	"&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;",
)

// escape makes a Markup of t. One that is a Markup already stays as it is.
func (r *run) escape(t str) str {
	if t.safe {
		return t
	}
	out := r.transform(t, func(b *builder, s string) { b.raw(htmlEscapes.Replace(s)) })
	out.safe = true
	return out
}

func floatFilter(r *run, x any, a *args) any {
	v := r.take(a, 0, "default")
	if f, ok := r.parseFloat(x); ok {
		return f
	}
	if !given(v[0]) {
		return 0.0
	}
	return v[0]
}

// parseFloat is Python's float.
func (r *run) parseFloat(x any) (float64, bool) {
	r.defined(x)
	s, ok := x.(str)
	if !ok {
		return asFloat(x)
	}
	text := r.numeral(s)
	if strings.ContainsAny(text, "xXpP") {
		return 0, false
	}
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil || math.IsInf(f, 0)
}

// numeral is the text of a number without blanks around it and underscores between digits.
func (r *run) numeral(t str) string {
	s := r.strip(t, isSpace, true, true).s
	if len(s) > maxDigits {
		r.fail("a number of more than %d digits is not supported", maxDigits)
	}
	if strings.IndexFunc(s, func(c rune) bool { return c > 0x7f && unicode.IsDigit(c) }) >= 0 {
		r.fail("digits outside ASCII are not supported")
	}
	for i := 1; i+1 < len(s); i++ {
		if s[i] == '_' && isDigit(s[i-1]) && isDigit(s[i+1]) {
			s = s[:i] + s[i+1:]
		}
	}
	if strings.Contains(s, "_") {
		return "" // not a number
	}
	return s
}

func intFilter(r *run, x any, a *args) any {
	v := r.take(a, 0, "default", "base")
	otherwise := v[0]
	if !given(otherwise) {
		otherwise = int64(0)
	}
	base := r.integer(a, v[1], 10)
	r.defined(x)
	switch v := x.(type) {
	case *big.Int:
		return v
	case str:
		if i, ok := r.parseInt(v, base); ok {
			return i
		}
	case float64:
		if math.IsInf(v, 0) {
			r.fail("cannot convert float infinity to integer")
		}
	}
	if i, ok := asInt(x); ok {
		return i
	}
	f, ok := r.parseFloat(x)
	if !ok || math.IsNaN(f) || math.IsInf(f, 0) {
		return otherwise
	}
	i, _ := big.NewFloat(f).Int(nil)
	return small(i)
}

// parseInt is Python's int for a string.
func (r *run) parseInt(t str, base int) (any, bool) {
	if base != 0 && (base < 2 || base > 36) {
		return nil, false
	}
	s := strings.ToLower(r.numeral(t))
	sign := signAt(s)
	s = s[len(sign):]
	s = strings.TrimPrefix(s, map[int]string{2: "0b", 8: "0o", 16: "0x"}[base])
	if s == "" || !isHex(s[0]) && base <= 16 || base > 10 && strings.Contains(t.s, "_") {
		return nil, false
	}
	if base == 0 && s[0] == '0' && len(s) > 1 && isDigit(s[1]) && strings.Trim(s, "0") != "" {
		return nil, false // Go takes 017 for octal
	}
	i, ok := new(big.Int).SetString(strings.TrimPrefix(sign, "+")+s, base)
	if !ok {
		return nil, false
	}
	return small(i), true
}

func formatFilter(r *run, x any, a *args) any {
	if len(a.names) == 0 {
		return r.percent(r.soft(x), &Tuple{items: a.pos})
	}
	if len(a.pos) > 0 {
		r.fail("can't handle positional and keyword arguments at the same time")
	}
	d := NewDict()
	r.fill(d, a)
	return r.percent(r.soft(x), d)
}

func indent(r *run, x any, a *args) any {
	v := r.take(a, 0, "width", "first", "blank")
	pad, ok := v[0].(str)
	if !ok {
		n := max(0, r.integer(a, v[0], 4))
		r.charge(n)
		pad = lit(strings.Repeat(" ", n))
	}
	s, ok := x.(str)
	if !ok {
		r.defined(x)
		r.fail("indent needs a string, not %s", typeName(x))
	}
	text := r.concat(s, lit("\n"))
	b := r.builder()
	for i, line := range r.lines(text, false) {
		if i > 0 {
			b.raw("\n")
		}
		if i == 0 && r.flag(v[1], false) || i > 0 && (line.s != "" || r.flag(v[2], false)) {
			b.write(pad)
		}
		b.write(line)
	}
	out := b.str()
	out.safe = s.safe
	return out
}

func replaceFilter(r *run, x any, a *args) any {
	v := r.take(a, 2, "old", "new", "count")
	count := -1
	if v[2] != nil {
		count = r.integer(a, v[2], -1)
	}
	return r.replace(r.text(x), r.text(v[0]).s, r.text(v[1]), count)
}

func round(r *run, x any, a *args) any {
	v := r.take(a, 0, "precision", "method")
	precision, method := r.integer(a, v[0], 0), r.string(a, v[1], "common").s
	if precision < 0 || precision > 22 {
		r.fail("round: a precision of %d is not supported", precision)
	}
	f, ok := asFloat(x)
	if !ok {
		r.defined(x)
		r.fail("type %s doesn't define __round__ method", typeName(x))
	}
	scale := math.Pow(10, float64(precision))
	switch method {
	case "common":
		switch x := x.(type) {
		case *big.Int:
			return x
		case float64:
			f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'f', precision, 64), 64)
			return f
		}
		i, _ := asInt(x)
		return i
	case "ceil":
		return math.Ceil(f*scale) / scale
	case "floor":
		return math.Floor(f*scale) / scale
	}
	r.fail("method must be common, ceil or floor")
	return nil
}

func safe(r *run, x any, a *args) any {
	r.none(a)
	s := r.soft(x)
	s.safe = true
	return s
}

func stringFilter(r *run, x any, a *args) any {
	r.none(a)
	return r.soft(x)
}

// titleFilter is Jinja2's own: words begin after blanks, hyphens and opening brackets only.
func titleFilter(r *run, x any, a *args) any {
	r.none(a)
	within := false
	out := r.eachRune(r.soft(x), func(b *builder, c rune, s string) {
		switch {
		case isSpace(c) || strings.ContainsRune("-({[<", c):
			within = false
			b.raw(s)
		case within:
			b.raw(lowerRune(c, s))
		default:
			within = true
			b.raw(upperRune(c, s))
		}
	})
	out.safe = false
	return out
}

func trim(r *run, x any, a *args) any {
	v := r.take(a, 0, "chars")
	return r.strip(r.soft(x), r.cutset(a, v[0]), true, true)
}

func truncate(r *run, x any, a *args) any {
	v := r.take(a, 0, "length", "killwords", "end", "leeway")
	length, end := r.integer(a, v[0], 255), r.string(a, v[2], "...")
	leeway := 5
	if v[3] != nil {
		leeway = r.integer(a, v[3], leeway)
	}
	room := length - r.runeCount(end.s)
	s, ok := x.(str)
	if !ok || room < 0 || leeway < 0 {
		r.defined(x)
		r.fail("truncate needs a string, a length of at least that of the end, and a leeway")
	}
	if r.runeCount(s.s) <= length+leeway {
		return s
	}
	cut := r.offset(s.s, room)
	if !r.flag(v[1], false) {
		if i := strings.LastIndexByte(s.s[:cut], ' '); i >= 0 {
			cut = i
		}
	}
	return r.add(s.cut(0, cut), end)
}

func wordcount(r *run, x any, a *args) any {
	r.none(a)
	n, within := int64(0), false
	for part := range r.chunks(r.soft(x).s) {
		for _, c := range part {
			word := c == '_' || unicode.IsLetter(c) || unicode.IsNumber(c)
			if word && !within {
				n++
			}
			within = word
		}
	}
	return n
}
