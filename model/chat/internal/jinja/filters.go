package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

type filter = func(r *run, x any, a *args) any

// filters are the supported filters of Jinja2 by name. init fills the map, because filters such as
// map refer to it.
var filters map[string]filter

// unsupportedFilters are valid in Jinja2. They fail when a template applies them.
var unsupportedFilters = strings.Fields(`attr batch center filesizeformat forceescape groupby pprint
	random slice striptags truncate urlencode urlize wordcount wordwrap xmlattr`)

func init() {
	filters = map[string]filter{
		"abs": absFilter, "capitalize": onText(capitalize),
		"count": lengthFilter, "d": defaultFilter, "default": defaultFilter, "dictsort": dictsort,
		"e": onText(escapeHTML), "escape": onText(escapeHTML), "first": first,
		"float": floatFilter, "format": formatFilter, "indent": indent, "int": intFilter,
		"items": itemsFilter, "join": joinFilter, "last": last, "length": lengthFilter,
		"list": listFilter, "lower": onText(lower), "map": mapFilter, "max": extreme(1),
		"min": extreme(-1), "reject": choose(false, false), "rejectattr": choose(false, true),
		"replace": replaceFilter, "reverse": reverse, "round": round, "safe": onText(markup),
		"select": choose(true, false), "selectattr": choose(true, true), "sort": sortFilter,
		"string": onText(func(_ *run, t str) str { return t }), "sum": sum,
		"title": onText(titleFilter), "tojson": tojson, "trim": trim, "unique": unique,
		"upper": onText(upper),
	}
	for _, name := range unsupportedFilters {
		filters[name] = func(r *run, x any, a *args) any {
			r.fail("the filter %q is not supported", name)
			return nil
		}
	}
}

func onText(f func(r *run, t str) str) filter {
	return func(r *run, x any, a *args) any {
		noArgs(r, a)
		return f(r, softText(r, x))
	}
}

func markup(_ *run, t str) str { return str{t.s, t.c, true} }

func absFilter(r *run, x any, a *args) any {
	noArgs(r, a)
	if compare(r, x, int64(0), "abs") == -1 {
		return signed(r, "neg", x)
	}
	return signed(r, "pos", x)
}

func lengthFilter(r *run, x any, a *args) any {
	noArgs(r, a)
	s, ok := x.(sequence)
	r.failIf(!ok, "object of type '%s' has no len()", typeName(x))
	return int64(s.length(r))
}

func defaultFilter(r *run, x any, a *args) any {
	v := takeArgs(r, a, 0, "default_value", "boolean")
	switch {
	case !isUndefined(x) && (!flagArg(r, v[1]) || truth(r, x)):
		return x
	case !given(v[0]):
		return str{}
	}
	return v[0]
}

// escapeHTML returns t as a Markup. It returns t itself if it is one.
func escapeHTML(r *run, t str) str {
	if t.safe {
		return t
	}
	b := &builder{r: r, safe: true}
	b.mapRunes(t, func(c rune) string {
		if i := strings.IndexRune("&<>'\"", c); i >= 0 {
			return [...]string{"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"}[i]
		}
		return ""
	})
	return b.str()
}

func floatFilter(r *run, x any, a *args) any {
	v := takeArgs(r, a, 0, "default")
	f, ok := parseFloat(r, x)
	switch {
	case ok:
		return f
	case given(v[0]):
		return v[0]
	}
	return 0.0
}

// parseFloat is Python's float(x).
func parseFloat(r *run, x any) (float64, bool) {
	r.defined(x)
	s, ok := x.(str)
	if !ok {
		return asFloat(x)
	}
	text := strip(r, s, IsSpace, true, true).s
	simple := !strings.ContainsFunc(text, func(c rune) bool { return c > 0x7f || c == '_' })
	r.failIf(!simple || len(text) > maxDigits, "numbers with _, non-ASCII or over 300 digits are not supported")
	f, err := strconv.ParseFloat(text, 64)
	return f, (err == nil || math.IsInf(f, 0)) && !strings.ContainsAny(text, "xXpP")
}

func intFilter(r *run, x any, a *args) any {
	v := takeArgs(r, a, 0, "default", "base")
	r.failIf(given(v[1]) && v[1] != any(int64(10)), "int with a base other than 10 is not supported")
	f, ok := parseFloat(r, x)
	if s, isString := x.(str); isString {
		text := strings.TrimPrefix(strip(r, s, IsSpace, true, true).s, "+")
		if i, ok := new(big.Int).SetString(text, 10); ok {
			return small(i)
		}
	} else if i, isInt := x.(*big.Int); isInt {
		return i
	} else if i, isInt := asInt(x); isInt {
		return i
	} else if ok && math.IsInf(f, 0) {
		r.fail("cannot convert float infinity to integer")
	}
	switch {
	case ok && !math.IsNaN(f) && !math.IsInf(f, 0):
		i, _ := big.NewFloat(f).Int(nil)
		return small(i)
	case given(v[0]):
		return v[0]
	}
	return int64(0)
}

func formatFilter(r *run, x any, a *args) any {
	r.failIf(len(a.names) > 0, "format with keyword arguments is not supported")
	return percent(r, softText(r, x), &Tuple{a.pos})
}

func indent(r *run, x any, a *args) any {
	v := takeArgs(r, a, 0, "width", "first", "blank")
	pad, ok := v[0].(str)
	if !ok {
		pad = repeat(r, lit(" "), int64(integerArg(r, a, v[0], 4))).(str)
	}
	text := stringArg(r, a, x, "")
	b := &builder{r: r, safe: text.safe}
	for i, line := range splitLines(r, joinStr(r, str{}, text, lit("\n")), false) {
		if i > 0 {
			b.raw("\n")
		}
		if i == 0 && flagArg(r, v[1]) || i > 0 && (line.s != "" || flagArg(r, v[2])) {
			b.write(pad)
		}
		b.write(line)
	}
	return b.str()
}

func replaceFilter(r *run, x any, a *args) any {
	v := takeArgs(r, a, 2, "old", "new", "count")
	if v[2] == nil {
		v[2] = absent{}
	}
	return replaceAll(r, textOf(r, x), textOf(r, v[0]).s, textOf(r, v[1]), integerArg(r, a, v[2], -1))
}

func round(r *run, x any, a *args) any {
	v := takeArgs(r, a, 0, "precision", "method")
	precision, method := integerArg(r, a, v[0], 0), stringArg(r, a, v[1], "common").s
	f, isFloat := x.(float64)
	wrong := !isFloat && typeName(x) != "int"
	r.failIf(wrong || method != "common" || precision < 0 || precision > 22,
		"rounding a %s to %d digits with the method %s is not supported", typeName(x), precision, method)
	if !isFloat {
		return x
	}
	f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'f', precision, 64), 64) // the text is valid
	return f
}

// titleFilter is the filter title: a word begins after white space, a hyphen or an opening bracket.
func titleFilter(r *run, t str) str {
	r.failIf(strings.ContainsRune(t.s, 'Σ'), "the filter title of Σ is not supported")
	within := false
	t.safe = false
	return eachRune(r, t, func(c rune) string {
		begins := !within
		within = !IsSpace(c) && !strings.ContainsRune("-({[<", c)
		switch {
		case !within:
			return string(c)
		case begins:
			return upperRune(c)
		}
		return lowerRune(c)
	})
}

func trim(r *run, x any, a *args) any {
	v := takeArgs(r, a, 0, "chars")
	return strip(r, softText(r, x), cutset(r, a, v[0]), true, true)
}

type test = func(r *run, x any, a *args) bool

// tests are the supported tests of Jinja2, which follow "is".
var tests = map[string]test{
	"defined":     plain(func(_ *run, x any) bool { return !isUndefined(x) }),
	"undefined":   plain(func(_ *run, x any) bool { return isUndefined(x) }),
	"none":        plain(func(_ *run, x any) bool { return x == nil }),
	"boolean":     plain(func(_ *run, x any) bool { return typeName(x) == "bool" }),
	"true":        plain(func(_ *run, x any) bool { b, ok := x.(bool); return ok && b }),
	"false":       plain(func(_ *run, x any) bool { b, ok := x.(bool); return ok && !b }),
	"integer":     plain(func(_ *run, x any) bool { return typeName(x) == "int" }),
	"float":       plain(func(_ *run, x any) bool { return typeName(x) == "float" }),
	"number":      plain(func(_ *run, x any) bool { _, ok := asFloat(x); return ok }),
	"string":      plain(func(_ *run, x any) bool { _, ok := x.(str); return ok }),
	"escaped":     plain(func(_ *run, x any) bool { return typeName(x) == "Markup" }),
	"mapping":     plain(func(_ *run, x any) bool { _, ok := x.(*Dict); return ok }),
	"iterable":    plain(isIterable),
	"sequence":    plain(isSequence),
	"callable":    plain(isCallable),
	"odd":         plain(func(r *run, x any) bool { return divides(r, x, int64(2), 1) }),
	"even":        plain(func(r *run, x any) bool { return divides(r, x, int64(2), 0) }),
	"in":          func(r *run, x any, a *args) bool { return contains(r, takeArgs(r, a, 1, "seq")[0], x) },
	"sameas":      func(r *run, x any, a *args) bool { return same(r, x, takeArgs(r, a, 1, "other")[0]) },
	"divisibleby": func(r *run, x any, a *args) bool { return divides(r, x, takeArgs(r, a, 1, "num")[0], 0) },
}

func init() {
	for _, name := range []string{"filter", "lower", "test", "upper"} {
		tests[name] = func(r *run, x any, a *args) bool {
			r.fail("the test %q is not supported", name)
			return false
		}
	}
	for op, names := range map[string][]string{
		"==": {"==", "eq", "equalto"}, "!=": {"!=", "ne"}, "<": {"<", "lt", "lessthan"},
		"<=": {"<=", "le"}, ">": {">", "gt", "greaterthan"}, ">=": {">=", "ge"},
	} {
		for _, n := range names {
			tests[n] = func(r *run, x any, a *args) bool {
				return holds(r, op, x, takeArgs(r, a, 1, "")[0])
			}
		}
	}
}

func plain(f func(r *run, x any) bool) test {
	return func(r *run, x any, a *args) bool {
		noArgs(r, a)
		return f(r, x)
	}
}

// divides reports whether x % n is rest.
func divides(r *run, x, n any, rest int64) bool { return equal(r, binaryOp(r, "%", x, n), rest) }

func isIterable(_ *run, x any) bool {
	_, ok := x.(*generator)
	_, isSequence := x.(sequence)
	return ok || isSequence
}

// isSequence reports whether x has a length and items by key, which is true for a dict too.
func isSequence(_ *run, x any) bool {
	_, isLoop := x.(*loop)
	v, isView := x.(*view)
	_, ok := x.(sequence)
	return ok && !isLoop && (!isView || v.typ == "range")
}

func isCallable(_ *run, x any) bool {
	switch x.(type) {
	case *function, *macro, *loop, *Undefined:
		return true
	}
	return false
}

// same is Python's is operator. It fails if the result depends on how Python stores values.
func same(r *run, a, b any) bool {
	typ := typeName(a)
	stored := typ == "str" || typ == "Markup" || typ == "int" || typ == "float" || isUndefined(a)
	r.failIf(stored && typ == typeName(b), "comparing a %s with sameas is not supported", typ)
	return typ == typeName(b) && a == b
}
