package chat

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

type stringMethod = func(r *state, s string, a args) any

// stringMethods are Python's, by code points. Positions that count from the start of a search are not taken.
var stringMethods = map[string]stringMethod{
	"upper":      mapping(upper),
	"lower":      mapping(lower),
	"capitalize": mapping(capitalize),
	"title":      mapping(title),
	"strip":      strip(strings.TrimFunc),
	"lstrip":     strip(strings.TrimLeftFunc),
	"rstrip":     strip(strings.TrimRightFunc),
	"startswith": affix(strings.HasPrefix),
	"endswith":   affix(strings.HasSuffix),
	"removeprefix": func(r *state, s string, a args) any {
		return strings.TrimPrefix(s, r.text(a, r.take(a, 1, "prefix")[0], ""))
	},
	"removesuffix": func(r *state, s string, a args) any {
		return strings.TrimSuffix(s, r.text(a, r.take(a, 1, "suffix")[0], ""))
	},
	"replace": func(r *state, s string, a args) any {
		v := r.take(a, 2, "old", "new", "count")
		return r.replace(s, r.text(a, v[0], ""), r.text(a, v[1], ""), r.integer(a, v[2], -1))
	},
	"split":      func(r *state, s string, a args) any { return r.split(s, a, false) },
	"rsplit":     func(r *state, s string, a args) any { return r.split(s, a, true) },
	"splitlines": splitlines,
	"partition": func(r *state, s string, a args) any {
		sep := r.separator(a, r.take(a, 1, "sep")[0])
		before, after, found := strings.Cut(s, sep)
		if !found {
			sep = ""
		}
		return tuple{before, sep, after}
	},
	"join": func(r *state, s string, a args) any {
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
	"count": func(r *state, s string, a args) any {
		return strings.Count(s, r.text(a, r.take(a, 1, "sub")[0], ""))
	},
	"find":  find(strings.Index, false),
	"rfind": find(strings.LastIndex, false),
	"index": find(strings.Index, true),
	"isdigit": all(func(c rune) bool {
		return unicode.IsDigit(c) || strings.ContainsRune("²³¹", c) || c >= 0x2070 && c <= 0x2089 && c != 0x2071
	}),
	"isalpha": all(unicode.IsLetter),
	"isspace": all(isSpace),
}

func upper(s string) string { return newCaser().upper(s) }

func lower(s string) string { return newCaser().lower(s) }

func capitalize(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	c := newCaser()
	return c.title(s[:n]) + c.lower(s[n:])
}

// title begins a word behind everything that has no case, unlike the filter of that name.
func title(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	c := newCaser()
	first, inner := map[rune]string{}, map[rune]string{} // what characters become there
	cased := false
	for _, r := range s {
		known, change := first, c.title
		if cased {
			known, change = inner, c.lower
		}
		text, ok := known[r]
		if !ok {
			text = change(string(r))
			known[r] = text
		}
		b.WriteString(text)
		cased = unicode.IsUpper(r) || unicode.IsLower(r) || unicode.IsTitle(r)
	}
	return b.String()
}

// caser changes the case of texts, as Unicode does it without a language. What it is made of keeps state, so that each operation has its own,
// and takes long for short texts, so that an operation has one.
type caser struct{ toUpper, toLower, toTitle cases.Caser }

func newCaser() *caser {
	return &caser{cases.Upper(language.Und), cases.Lower(language.Und), cases.Title(language.Und, cases.NoLower)}
}

func (c *caser) upper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	return c.toUpper.String(s)
}

func (c *caser) lower(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	return c.toLower.String(s)
}

// title is the title case of one character, which may be several: "ﬁ" gives "Fi".
func (c *caser) title(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	return c.toTitle.String(s)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func mapping(f func(string) string) stringMethod {
	return func(r *state, s string, a args) any {
		r.take(a, 0)
		r.charge(8 * len(s))
		return f(s)
	}
}

func strip(f func(string, func(rune) bool) string) stringMethod {
	return func(r *state, s string, a args) any {
		return f(s, r.cutset(a, r.take(a, 0, "chars")[0]))
	}
}

// cutset says which characters are stripped: those given, or blanks.
func (r *state) cutset(a args, chars any) func(rune) bool {
	if chars == (none{}) || chars == (absent{}) {
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
	return func(r *state, s string, a args) any {
		part := r.take(a, 1, "prefix")[0]
		if t, ok := part.(tuple); ok {
			return slices.ContainsFunc(t, func(x any) bool { return f(s, r.text(a, x, "")) })
		}
		return f(s, r.text(a, part, ""))
	}
}

func (r *state) replace(s, from, to string, count int) string {
	n := strings.Count(s, from)
	if count >= 0 {
		n = min(n, count)
	}
	r.charge(len(s) + n*max(0, len(to)-len(from)))
	return strings.Replace(s, from, to, count)
}

func (r *state) separator(a args, v any) string {
	sep := r.text(a, v, "")
	if sep == "" {
		r.fail("empty separator")
	}
	return sep
}

func (r *state) split(s string, a args, fromRight bool) any {
	v := r.take(a, 0, "sep", "maxsplit")
	limit := r.integer(a, v[1], -1)
	var parts []string
	if v[0] == (absent{}) || v[0] == (none{}) {
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
	return list(out)
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

func splitlines(r *state, s string, a args) any {
	keep := flag(r.take(a, 0, "keepends")[0], false)
	lines := r.lines(s, keep)
	r.charge(16 * len(lines))
	out := make([]any, len(lines))
	for i, l := range lines {
		out[i] = l
	}
	return list(out)
}

func (r *state) lines(s string, keep bool) []string {
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
	return func(r *state, s string, a args) any {
		i := f(s, r.text(a, r.take(a, 1, "sub")[0], ""))
		if i >= 0 {
			return utf8.RuneCountInString(s[:i])
		}
		if must {
			r.fail("substring not found")
		}
		return -1
	}
}

// lineEnds are all that Python knows.
const lineEnds = "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029"

// all says that there are characters, all of a kind.
func all(f func(rune) bool) stringMethod {
	return func(r *state, s string, a args) any {
		r.take(a, 0)
		return s != "" && strings.IndexFunc(s, func(c rune) bool { return !f(c) }) < 0
	}
}
