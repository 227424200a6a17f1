package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// method binds a Python method to its value.
func (r *run) method(x any, name string) (any, bool) {
	switch v := x.(type) {
	case string:
		f, ok := stringMethods[name]
		if !ok {
			if slices.Contains(unsupportedStringMethods, name) {
				r.fail("str.%s is not supported", name)
			}
			return nil, false
		}
		return &function{name: "str." + name, call: func(r *run, a args) any { return f(r, v, a) }}, true
	case markup:
		r.plain(v)
	case *Dict:
		f, ok := dictMethods[name]
		if !ok {
			return r.forbidden(name, "dict", "clear pop popitem setdefault update fromkeys")
		}
		return &function{name: "dict." + name, call: func(r *run, a args) any { return f(r, v, a) }}, true
	case *List:
		f, ok := listMethods[name]
		if !ok {
			return r.forbidden(name, "list", "append clear extend insert pop remove reverse sort")
		}
		return &function{name: "list." + name, call: func(r *run, a args) any { return f(r, v.Items, a) }}, true
	case *Tuple:
		if f, ok := listMethods[name]; ok && name != "copy" {
			return &function{name: "tuple." + name, call: func(r *run, a args) any { return f(r, v.Items, a) }}, true
		}
	}
	return nil, false
}

// forbidden gives a method that exists in Python and that the sandbox does not let a template call.
func (r *run) forbidden(name, of, changing string) (any, bool) {
	if !slices.Contains(strings.Fields(changing), name) {
		return nil, false
	}
	return &Undefined{"access to attribute '" + name + "' of '" + of + "' object is unsafe."}, true
}

var dictMethods = map[string]func(r *run, d *Dict, a args) any{
	"items": func(r *run, d *Dict, a args) any {
		r.take(a, 0)
		return &view{"dict_items", r.pairs(d)}
	},
	"keys": func(r *run, d *Dict, a args) any {
		r.take(a, 0)
		return &view{"dict_keys", d.keys}
	},
	"values": func(r *run, d *Dict, a args) any {
		r.take(a, 0)
		return &view{"dict_values", d.values}
	},
	"get": func(r *run, d *Dict, a args) any {
		v := r.take(a, 1, "key", "default")
		if _, undefined := v[0].(*Undefined); undefined {
			v[0] = absent{}
		} else if i, ok := d.index[r.hash(v[0])]; ok {
			return d.values[i]
		}
		if v[1] == (absent{}) {
			return nil
		}
		return v[1]
	},
	"copy": func(r *run, d *Dict, a args) any { // nothing can change it: it is its own copy
		r.take(a, 0)
		return d
	},
}

var listMethods = map[string]func(r *run, items []any, a args) any{
	"index": func(r *run, items []any, a args) any {
		x := r.take(a, 1, "value")[0]
		for i, y := range items {
			if r.equal(x, y) {
				return int64(i)
			}
		}
		r.fail("the value is not in the list")
		return nil
	},
	"count": func(r *run, items []any, a args) any {
		x, n := r.take(a, 1, "value")[0], int64(0)
		for _, y := range items {
			if r.equal(x, y) {
				n++
			}
		}
		return n
	},
	"copy": func(r *run, items []any, a args) any {
		r.take(a, 0)
		return &List{items}
	},
}

var unsupportedStringMethods = []string{
	"encode", "expandtabs", "format_map", "isidentifier", "isprintable", "istitle", "maketrans", "translate",
}

type stringMethod = func(r *run, s string, a args) any

// stringMethods are Python's, by code points. Positions that count from the start of a search are not taken.
var stringMethods = map[string]stringMethod{
	"upper":      mapping(upper),
	"lower":      mapping(lower),
	"casefold":   mapping(func(s string) string { return cases.Fold().String(s) }),
	"capitalize": mapping(capitalize),
	"title":      mapping(title),
	"swapcase":   mapping(swapcase),
	"strip":      strip(strings.TrimFunc),
	"lstrip":     strip(strings.TrimLeftFunc),
	"rstrip":     strip(strings.TrimRightFunc),
	"startswith": affix(strings.HasPrefix),
	"endswith":   affix(strings.HasSuffix),
	"removeprefix": func(r *run, s string, a args) any {
		return strings.TrimPrefix(s, r.text(a, r.take(a, 1, "prefix")[0], ""))
	},
	"removesuffix": func(r *run, s string, a args) any {
		return strings.TrimSuffix(s, r.text(a, r.take(a, 1, "suffix")[0], ""))
	},
	"replace": func(r *run, s string, a args) any {
		v := r.take(a, 2, "old", "new", "count")
		return r.replace(s, r.text(a, v[0], ""), r.text(a, v[1], ""), r.integer(a, v[2], -1))
	},
	"split":      func(r *run, s string, a args) any { return r.split(s, a, false) },
	"rsplit":     func(r *run, s string, a args) any { return r.split(s, a, true) },
	"splitlines": splitlines,
	"partition": func(r *run, s string, a args) any {
		sep := r.separator(a, r.take(a, 1, "sep")[0])
		before, after, found := strings.Cut(s, sep)
		if !found {
			sep = ""
		}
		return &Tuple{[]any{before, sep, after}}
	},
	"rpartition": func(r *run, s string, a args) any {
		sep := r.separator(a, r.take(a, 1, "sep")[0])
		i := strings.LastIndex(s, sep)
		if i < 0 {
			return &Tuple{[]any{"", "", s}}
		}
		return &Tuple{[]any{s[:i], sep, s[i+len(sep):]}}
	},
	"join": func(r *run, s string, a args) any {
		items := r.items(r.take(a, 1, "iterable")[0])
		parts := make([]string, len(items))
		n := 0
		for i, x := range items {
			part, ok := x.(string)
			if !ok {
				r.fail("sequence item %d: expected str instance, %s found", i, typeName(x))
			}
			parts[i] = part
			n += len(part) + len(s) + 16
		}
		r.charge(n)
		return strings.Join(parts, s)
	},
	"count": func(r *run, s string, a args) any {
		r.tick(len(s) / 16)
		return int64(strings.Count(s, r.text(a, r.take(a, 1, "sub")[0], "")))
	},
	"find":   find(strings.Index, false),
	"rfind":  find(strings.LastIndex, false),
	"index":  find(strings.Index, true),
	"rindex": find(strings.LastIndex, true),
	"center": padding("center"),
	"ljust":  padding("ljust"),
	"rjust":  padding("rjust"),
	"zfill": func(r *run, s string, a args) any {
		width := r.integer(a, r.take(a, 1, "width")[0], 0)
		sign := ""
		if s != "" && (s[0] == '+' || s[0] == '-') {
			sign, s = s[:1], s[1:]
		}
		return sign + r.pad(s, width-len(sign), "0", "rjust")
	},
	"format":    func(r *run, s string, a args) any { return r.format(s, a) },
	"isdigit":   all(func(c rune) bool { return unicode.IsDigit(c) || isSuperscript(c) }),
	"isdecimal": all(unicode.IsDigit),
	"isnumeric": all(unicode.IsNumber),
	"isalpha":   all(unicode.IsLetter),
	"isalnum":   all(func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }),
	"isspace":   all(isSpace),
	"islower":   whole(isLowerCase),
	"isupper":   whole(isUpperCase),
	"isascii":   whole(func(s string) bool { return strings.IndexFunc(s, func(c rune) bool { return c > 0x7f }) < 0 }),
}

// A Caser keeps state, so each call has its own.
func upper(s string) string { return cases.Upper(language.Und).String(s) }

func lower(s string) string { return cases.Lower(language.Und).String(s) }

func capitalize(s string) string {
	for i := range s {
		if i > 0 {
			return titleRune(s[:i]) + lower(s[i:])
		}
	}
	return titleRune(s)
}

// titleRune is the title case of one character, which may be several: "ﬁ" gives "Fi".
func titleRune(s string) string { return cases.Title(language.Und, cases.NoLower).String(s) }

// title begins a word behind everything that has no case, unlike the filter of that name.
func title(s string) string {
	var b strings.Builder
	cased := false
	for _, c := range s {
		if cased {
			b.WriteString(lower(string(c)))
		} else {
			b.WriteString(titleRune(string(c)))
		}
		cased = unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c)
	}
	return b.String()
}

func swapcase(s string) string {
	var b strings.Builder
	for _, c := range s {
		switch {
		case unicode.IsUpper(c):
			b.WriteString(lower(string(c)))
		case unicode.IsLower(c):
			b.WriteString(upper(string(c)))
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

func isSuperscript(c rune) bool {
	return strings.ContainsRune("²³¹", c) || c >= 0x2070 && c <= 0x2079 && c != 0x2071 || c >= 0x2080 && c <= 0x2089
}

func mapping(f func(string) string) stringMethod {
	return func(r *run, s string, a args) any {
		r.take(a, 0)
		r.charge(8 * len(s))
		return f(s)
	}
}

func strip(f func(string, func(rune) bool) string) stringMethod {
	return func(r *run, s string, a args) any {
		r.tick(len(s) / 64)
		return f(s, r.cutset(a, r.take(a, 0, "chars")[0]))
	}
}

// cutset says which characters are stripped: those given, or blanks.
func (r *run) cutset(a args, chars any) func(rune) bool {
	if chars == nil || chars == (absent{}) {
		return isSpace
	}
	set := map[rune]bool{}
	for _, c := range r.text(a, chars, "") {
		set[c] = true
	}
	return func(c rune) bool { return set[c] }
}

// affix is startswith and endswith, of one string or any of a tuple.
func affix(f func(s, part string) bool) stringMethod {
	return func(r *run, s string, a args) any {
		part := r.take(a, 1, "prefix")[0]
		if t, ok := part.(*Tuple); ok {
			return slices.ContainsFunc(t.Items, func(x any) bool { return f(s, r.text(a, x, "")) })
		}
		return f(s, r.text(a, part, ""))
	}
}

func (r *run) replace(s, from, to string, count int) string {
	r.tick(len(s) / 16)
	n := strings.Count(s, from)
	if count >= 0 {
		n = min(n, count)
	}
	r.charge(len(s) + n*max(0, len(to)-len(from)))
	return strings.Replace(s, from, to, count)
}

func (r *run) separator(a args, v any) string {
	sep := r.text(a, v, "")
	if sep == "" {
		r.fail("empty separator")
	}
	return sep
}

func (r *run) split(s string, a args, fromRight bool) any {
	v := r.take(a, 0, "sep", "maxsplit")
	limit := r.integer(a, v[1], -1)
	var parts []string
	r.tick(len(s) / 16)
	if v[0] == (absent{}) || v[0] == nil {
		r.charge(8 * len(s)) // every other character at most begins one
		parts = fields(s, limit, fromRight)
	} else {
		sep := r.separator(a, v[0])
		r.charge(32 * strings.Count(s, sep))
		parts = cut(s, sep, limit, fromRight)
	}
	r.charge(48 * len(parts))
	out := make([]any, len(parts))
	for i, p := range parts {
		out[i] = p
	}
	return &List{out}
}

// cut splits at sep, at most limit times unless that is negative, counted from the right if asked.
func cut(s, sep string, limit int, fromRight bool) []string {
	if limit < 0 {
		return strings.Split(s, sep)
	}
	if !fromRight {
		return strings.SplitN(s, sep, limit+1)
	}
	var parts []string
	for ; limit > 0; limit-- {
		i := strings.LastIndex(s, sep)
		if i < 0 {
			break
		}
		parts = append(parts, s[i+len(sep):])
		s = s[:i]
	}
	parts = append(parts, s)
	slices.Reverse(parts)
	return parts
}

// fields splits at runs of blanks; what is left behind the last split keeps its inner blanks.
func fields(s string, limit int, fromRight bool) []string {
	if limit < 0 {
		return strings.FieldsFunc(s, isSpace)
	}
	var parts []string
	if fromRight {
		for s = strings.TrimRightFunc(s, isSpace); s != ""; s = strings.TrimRightFunc(s, isSpace) {
			i := strings.LastIndexFunc(s, isSpace)
			if len(parts) == limit || i < 0 {
				parts = append(parts, s)
				break
			}
			_, width := utf8.DecodeRuneInString(s[i:])
			parts = append(parts, s[i+width:])
			s = s[:i]
		}
		slices.Reverse(parts)
		return parts
	}
	for s = strings.TrimLeftFunc(s, isSpace); s != ""; s = strings.TrimLeftFunc(s, isSpace) {
		i := strings.IndexFunc(s, isSpace)
		if len(parts) == limit || i < 0 {
			return append(parts, s)
		}
		parts = append(parts, s[:i])
		s = s[i:]
	}
	return parts
}

func splitlines(r *run, s string, a args) any {
	keep := flag(r.take(a, 0, "keepends")[0], false)
	lines := r.lines(s, keep)
	r.charge(16 * len(lines))
	out := make([]any, len(lines))
	for i, l := range lines {
		out[i] = l
	}
	return &List{out}
}

// lineEnds are all that Python knows.
const lineEnds = "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029"

func (r *run) lines(s string, keep bool) []string {
	n := 1
	for _, c := range s {
		if strings.ContainsRune(lineEnds, c) {
			n++
		}
	}
	r.charge(16*n + len(s))
	out := make([]string, 0, n)
	for s != "" {
		i := strings.IndexAny(s, lineEnds)
		if i < 0 {
			return append(out, s)
		}
		_, width := utf8.DecodeRuneInString(s[i:])
		if strings.HasPrefix(s[i:], "\r\n") {
			width = 2
		}
		if keep {
			out = append(out, s[:i+width])
		} else {
			out = append(out, s[:i])
		}
		s = s[i+width:]
	}
	return out
}

// find gives positions in characters; where there is none it gives -1 or fails.
func find(f func(s, sub string) int, must bool) stringMethod {
	return func(r *run, s string, a args) any {
		r.tick(len(s) / 16)
		i := f(s, r.text(a, r.take(a, 1, "sub")[0], ""))
		if i >= 0 {
			return int64(runeCount(s[:i]))
		}
		if must {
			r.fail("substring not found")
		}
		return int64(-1)
	}
}

func padding(how string) stringMethod {
	return func(r *run, s string, a args) any {
		v := r.take(a, 1, "width", "fillchar")
		fill := r.text(a, v[1], " ")
		if runeCount(fill) != 1 {
			r.fail("The fill character must be exactly one character long")
		}
		return r.pad(s, r.integer(a, v[0], 0), fill, how)
	}
}

func (r *run) pad(s string, width int, fill, how string) string {
	n := max(0, width-runeCount(s))
	r.charge(len(s) + n*len(fill))
	left := n
	switch how {
	case "ljust":
		left = 0
	case "center":
		left = n/2 + n&width&1
	}
	return strings.Repeat(fill, left) + s + strings.Repeat(fill, n-left)
}

func all(f func(rune) bool) stringMethod {
	return whole(func(s string) bool {
		return s != "" && strings.IndexFunc(s, func(c rune) bool { return !f(c) }) < 0
	})
}

func whole(f func(string) bool) stringMethod {
	return func(r *run, s string, a args) any {
		r.take(a, 0)
		r.tick(len(s) / 8)
		return f(s)
	}
}
