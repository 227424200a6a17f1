package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// getMethod returns a Python method bound to x. It returns Undefined if the sandbox forbids it.
func getMethod(r *run, x any, name string) (any, bool) {
	var f func(r *run, x any, a *args) any
	switch x := x.(type) {
	case str:
		if f = stringMethods[name]; x.safe && slices.Contains(escaping, name) {
			f = nil
		}
	case *Dict:
		f = dictMethods[name]
	case *List:
		f = listMethods[name]
	case *Tuple:
		if listMethods[name] != nil {
			return getMethod(r, &List{x.items}, name)
		}
	}
	if f != nil {
		return &function{name, func(r *run, a *args) any { return f(r, x, a) }}, true
	}
	if !attributes[name] {
		return nil, false
	}
	typ := typeName(x)
	if slices.Contains(unsafe[typ], name) {
		hint := "access to attribute '" + name + "' of '" + typ + "' object is unsafe."
		return &Undefined{hint: hint}, true
	}
	r.failIf(slices.Contains(unsupported[typ], name), "%s.%s is not supported", typ, name)
	return nil, false
}

// unsafe are the methods that the sandbox forbids. unsupported are the other attributes of Python's
// types.
var (
	unsafe = map[string][]string{
		"list": strings.Fields("append clear extend insert pop remove reverse sort"),
		"dict": strings.Fields("clear pop popitem setdefault update"),
	}
	unsupported = map[string][]string{
		"dict": {"fromkeys"},
		"list": {"copy", "count"}, "tuple": {"count"},
		"generator": strings.Fields("send throw close gi_running gi_yieldfrom gi_code gi_frame"),
		"range":     strings.Fields("start stop step count index"),
		"Macro":     strings.Fields("name arguments catch_kwargs catch_varargs caller explicit_caller"),
		"int":       numeric, "bool": numeric, "float": numeric, "str": ofStr, "Markup": ofStr,
		"dict_keys": ofView, "dict_values": ofView, "dict_items": ofView,
	}
	numeric = strings.Fields(`real imag numerator denominator conjugate as_integer_ratio is_integer
		bit_length bit_count to_bytes from_bytes hex fromhex`)
	ofView = []string{"mapping", "isdisjoint"}
	ofStr  = append(escaping, strings.Fields(`casefold center encode escape expandtabs format_map
		isascii isdecimal isidentifier islower isnumeric isprintable istitle isupper ljust maketrans
		rjust striptags swapcase translate unescape zfill`)...)
	// The methods of a Markup that escape their arguments.
	escaping = slices.Clip(strings.Fields("format join partition replace rpartition"))
)

// attributes is the set of all names in unsafe and unsupported.
var attributes = map[string]bool{}

func init() {
	for _, of := range []map[string][]string{unsafe, unsupported} {
		for _, names := range of {
			for _, name := range names {
				attributes[name] = true
			}
		}
	}
}

type method = func(r *run, x any, a *args) any

var dictMethods = map[string]method{
	"items":  func(r *run, x any, a *args) any { noArgs(r, a); return newView(r, x.(*Dict), "dict_items") },
	"keys":   func(r *run, x any, a *args) any { noArgs(r, a); return newView(r, x.(*Dict), "dict_keys") },
	"values": func(r *run, x any, a *args) any { noArgs(r, a); return newView(r, x.(*Dict), "dict_values") },
	"copy":   func(r *run, x any, a *args) any { noArgs(r, a); return x }, // dicts are immutable
	"get": func(r *run, x any, a *args) any {
		v, d := takeArgs(r, a, 1, "", ""), x.(*Dict)
		if i := d.find(keyHash(r, v[0])); i >= 0 {
			return d.entries[i].value
		} else if given(v[1]) {
			return v[1]
		}
		return nil
	},
}

var listMethods = map[string]method{
	"index": func(r *run, x any, a *args) any {
		v := takeArgs(r, a, 1, "")[0]
		i := slices.IndexFunc(x.(*List).Items, func(y any) bool { return equal(r, v, y) })
		r.failIf(i < 0, "list.index: the value is not in the list")
		return int64(i)
	},
}

// stringMethods are the methods of str. They count code points. Searches do not support a start or
// an end. init fills the map, because format refers to it.
var stringMethods map[string]method

func init() {
	stringMethods = map[string]method{
		"upper":        onText(upper),
		"lower":        onText(lower),
		"capitalize":   onText(capitalize),
		"title":        onText(title),
		"strip":        stripping(true, true),
		"lstrip":       stripping(true, false),
		"rstrip":       stripping(false, true),
		"startswith":   affix(strings.HasPrefix),
		"endswith":     affix(strings.HasSuffix),
		"removeprefix": removing(strings.HasPrefix, true),
		"removesuffix": removing(strings.HasSuffix, false),
		"replace":      replaceMethod,
		"split":        splitting(false),
		"rsplit":       splitting(true),
		"splitlines":   splitlines,
		"partition":    partition(strings.Index, 0),
		"rpartition":   partition(strings.LastIndex, 2),
		"join":         joinMethod,
		"count":        searching(strings.Count, false, false),
		"find":         searching(strings.Index, true, false),
		"rfind":        searching(strings.LastIndex, true, false),
		"index":        searching(strings.Index, true, true),
		"rindex":       searching(strings.LastIndex, true, true),
		"format":       func(r *run, x any, a *args) any { return formatStr(r, x.(str), a) },
		"isdigit":      all(func(c rune) bool { return unicode.IsDigit(c) || isSuperscript(c) }),
		"isalpha":      all(unicode.IsLetter),
		"isalnum":      all(func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }),
		"isspace":      all(IsSpace),
	}
}

func isSuperscript(c rune) bool {
	return strings.ContainsRune("²³¹⁰", c) || c >= '⁴' && c <= '⁹' || c >= '₀' && c <= '₉'
}

func all(f func(rune) bool) method {
	return func(r *run, x any, a *args) any {
		noArgs(r, a)
		return truth(r, x) && everyRune(r, x.(str).s, f)
	}
}

func stripping(left, right bool) method {
	return func(r *run, x any, a *args) any {
		return strip(r, x.(str), cutset(r, a, takeArgs(r, a, 0, "")[0]), left, right)
	}
}

// cutset returns the set of characters to strip: those in chars, or white space if it is not set.
func cutset(r *run, a *args, chars any) func(rune) bool {
	if !set(chars) {
		return IsSpace
	}
	in := stringArg(r, a, chars, "").s
	r.failIf(len(in) > 1000, "stripping more than 1000 characters is not supported")
	return func(c rune) bool { return strings.ContainsRune(in, c) }
}

// strip removes the characters of a set from the left end, the right end or both.
func strip(r *run, t str, set func(rune) bool, left, right bool) str {
	from, to := 0, len(t.s)
	counted := func(c rune) bool {
		r.tick(1)
		return set(c)
	}
	if left {
		from = to - len(strings.TrimLeftFunc(t.s, counted))
	}
	if right {
		to = from + len(strings.TrimRightFunc(t.s[from:], counted))
	}
	return t.cut(from, to)
}

// affix is startswith or endswith. The argument is a string, or a tuple of which any may match.
func affix(f func(s, part string) bool) method {
	return func(r *run, x any, a *args) any {
		v := takeArgs(r, a, 1, "")[0]
		t, ok := v.(*Tuple)
		if !ok {
			t = &Tuple{[]any{v}}
		}
		return slices.ContainsFunc(t.items, func(v any) bool {
			part := stringArg(r, a, v, "").s
			r.tick(1 + len(part)/64)
			return f(x.(str).s, part)
		})
	}
}

func removing(has func(s, part string) bool, prefix bool) method {
	return func(r *run, x any, a *args) any {
		s, part := x.(str), stringArg(r, a, takeArgs(r, a, 1, "")[0], "").s
		r.tick(len(part) / 64)
		switch {
		case !has(s.s, part):
			return s
		case prefix:
			return s.cut(len(part), len(s.s))
		}
		return s.cut(0, len(s.s)-len(part))
	}
}

func replaceMethod(r *run, x any, a *args) any {
	v := takeArgs(r, a, 2, "", "", "")
	from, to := stringArg(r, a, v[0], "").s, stringArg(r, a, v[1], "")
	return replaceAll(r, x.(str), from, to, integerArg(r, a, v[2], -1))
}

func replaceAll(r *run, s str, from string, to str, count int) str {
	b := &builder{r: r, safe: s.safe}
	b.grow(len(s.s))
	done, at := 0, 0
	for ; count != 0 && at <= len(s.s); count-- {
		r.tick(1)
		i := indexOf(r, s.s[at:], from)
		if i < 0 {
			break
		}
		b.write(s.cut(done, at+i), to)
		done = at + i + len(from)
		if at = done; from == "" { // it matches between all characters and at the end
			_, width := utf8.DecodeRuneInString(s.s[at:])
			at += max(width, 1)
		}
	}
	b.write(s.cut(done, len(s.s)))
	return b.str()
}

// splitting is split or rsplit. Without a separator it splits at runs of white space. It splits at
// most maxsplit times unless that is negative.
func splitting(fromRight bool) method {
	return func(r *run, x any, a *args) any {
		s, v := x.(str), takeArgs(r, a, 0, "sep", "maxsplit")
		most, sep := integerArg(r, a, v[1], -1), ""
		if set(v[0]) {
			sep = stringArg(r, a, v[0], "").s
			r.failIf(sep == "", "empty separator")
		}
		var parts []any
		for ; ; most-- {
			r.charge(64)
			if sep == "" {
				s = strip(r, s, IsSpace, !fromRight, fromRight)
			}
			at, width := -1, len(sep) // of the next separator
			switch {
			case most == 0:
			case sep == "" && fromRight:
				at, width = len(strip(r, s, isNotSpace, false, true).s), 0
				if at == 0 {
					at = -1
				}
			case sep == "":
				at, width = len(s.s)-len(strip(r, s, isNotSpace, true, false).s), 0
			case fromRight:
				at = strings.LastIndex(s.s, sep)
				r.tick((len(s.s) - max(at, 0)) / 64)
			default:
				at = indexOf(r, s.s, sep)
			}
			if at < 0 || at == len(s.s) && sep == "" {
				break
			}
			if fromRight {
				parts = append(parts, s.cut(at+width, len(s.s)))
				s = s.cut(0, at)
			} else {
				parts = append(parts, s.cut(0, at))
				s = s.cut(at+width, len(s.s))
			}
		}
		if s.s != "" || sep != "" {
			parts = append(parts, s)
		}
		if fromRight {
			slices.Reverse(parts)
		}
		return newList(r, parts)
	}
}

func isNotSpace(c rune) bool { return !IsSpace(c) }

func splitlines(r *run, x any, a *args) any {
	var parts []any
	for _, line := range splitLines(r, x.(str), flagArg(r, takeArgs(r, a, 0, "keepends")[0])) {
		parts = append(parts, line)
	}
	return newList(r, parts)
}

// splitLines splits s at the line ends of Python's splitlines.
func splitLines(r *run, s str, keep bool) (out []str) {
	for s.s != "" {
		at, end := len(s.s), len(s.s)
		for i, c := range s.s {
			r.tick(1)
			if (c < ' ' || c > 0x7f) && strings.ContainsRune("\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029", c) {
				at, end = i, i+utf8.RuneLen(c)
				break
			}
		}
		if strings.HasPrefix(s.s[at:], "\r\n") {
			end++
		}
		r.charge(96)
		if keep {
			at = end
		}
		out = append(out, s.cut(0, at))
		s = s.cut(end, len(s.s))
	}
	return out
}

// partition splits s at a separator into three parts. If there is none, part place is all of s.
func partition(find func(s, sep string) int, place int) method {
	return func(r *run, x any, a *args) any {
		s, sep := x.(str), stringArg(r, a, takeArgs(r, a, 1, "")[0], "")
		r.failIf(sep.s == "", "empty separator")
		r.tick(len(s.s) / 64)
		parts := []any{str{}, str{}, str{}}
		parts[place] = s
		if i := find(s.s, sep.s); i >= 0 {
			end := i + len(sep.s)
			parts = []any{s.cut(0, i), s.cut(i, end), s.cut(end, len(s.s))}
		}
		return &Tuple{parts}
	}
}

func joinMethod(r *run, x any, a *args) any {
	var parts []str
	for x := range walk(r, takeArgs(r, a, 1, "")[0]) {
		part, ok := x.(str)
		r.failIf(!ok, "sequence item %d: expected str instance", len(parts))
		r.charge(32)
		parts = append(parts, part)
	}
	return joinStr(r, x.(str), parts...)
}

// searching returns the result of f, in characters if it is a position. If must is set, -1 fails.
func searching(f func(s, sub string) int, position, must bool) method {
	return func(r *run, x any, a *args) any {
		s, sub := x.(str).s, stringArg(r, a, takeArgs(r, a, 1, "")[0], "").s
		r.tick(len(s) / 32)
		i := f(s, sub)
		r.failIf(i < 0 && must, "substring not found")
		if i > 0 && position {
			i = runeCount(r, s[:i])
		}
		return int64(i)
	}
}

// Case mappings are Python's: the upper case of ß is SS, and a final Σ becomes ς.

// eachRune returns t with each character replaced by the result of f. Invalid bytes stay.
func eachRune(r *run, t str, f func(c rune) string) str {
	b := &builder{r: r, safe: t.safe}
	b.grow(len(t.s))
	b.mapRunes(t, func(c rune) string {
		if c == utf8.RuneError {
			return ""
		}
		return f(c)
	})
	return b.str()
}

func upper(r *run, t str) str { return eachRune(r, t, upperRune) }

// upperRune returns the upper case of c, which may be several characters.
func upperRune(c rune) string {
	if u := unicode.ToUpper(c); !expands(c, u) {
		return string(u)
	}
	return cases.Upper(language.Und).String(string(c))
}

// titleRune returns the title case of c, such as Fi for ﬁ.
func titleRune(c rune) string {
	if u := unicode.ToTitle(c); !expands(c, u) {
		return string(u)
	}
	return cases.Title(language.Und, cases.NoLower).String(string(c))
}

// expands reports whether the mapping of c may have more characters than u, its simple mapping: c
// is a lower case letter without a simple mapping, or a Greek letter with an iota.
func expands(c, u rune) bool { return u == c && unicode.IsLower(c) || c >= 0x1f80 && c < 0x2000 }

func lowerRune(c rune) string {
	if c == 'İ' {
		return "i̇"
	}
	return string(unicode.ToLower(c))
}

func lower(r *run, t str) str {
	if !strings.ContainsRune(t.s, 'Σ') {
		return eachRune(r, t, lowerRune)
	}
	// The lower case of Σ depends on the letters around it, across the borders of spans.
	mixed := t.c != nil && t.c != whole
	r.failIf(mixed || len(t.s) > 1<<20, "lower case of Σ in mixed or long text is not supported")
	r.charge(8 * len(t.s))
	return str{cases.Lower(language.Und).String(t.s), t.c, t.safe}
}

func capitalize(r *run, t str) str {
	_, n := utf8.DecodeRuneInString(t.s)
	first, rest := t.cut(0, n), lower(r, t)
	rest = rest.cut(len(lower(r, first).s), len(rest.s))
	out := joinStr(r, str{}, eachRune(r, first, titleRune), rest)
	out.safe = t.safe
	return out
}

// cased are the characters with case.
var cased = []*unicode.RangeTable{
	unicode.Lu, unicode.Ll, unicode.Lt, unicode.Other_Lowercase, unicode.Other_Uppercase,
}

// title is str.title: a word begins after any character without case, unlike in the filter title.
func title(r *run, t str) str {
	r.failIf(strings.ContainsRune(t.s, 'Σ'), "str.title of Σ is not supported")
	within := false
	return eachRune(r, t, func(c rune) string {
		begins := !within
		if within = unicode.In(c, cased...); begins {
			return titleRune(c)
		}
		return lowerRune(c)
	})
}

// everyRune reports whether f is true for all characters of s.
func everyRune(r *run, s string, f func(rune) bool) bool {
	for s != "" {
		part := nextChunk(r, s)
		if strings.IndexFunc(part, func(c rune) bool { return !f(c) }) >= 0 {
			return false
		}
		s = s[len(part):]
	}
	return true
}
