package chat

import (
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// filters are those of Jinja2 that chat templates use. The others (escape, urlize, groupby, ...) make Parse fail. It is filled once by init,
// because the filters that apply others refer to it, and only read after.
var filters map[string]func(r *state, x any, a args) any

func init() {
	filters = map[string]func(r *state, x any, a args) any{
		"capitalize": onText("capitalize"), "count": lengthFilter, "d": defaultFilter, "default": defaultFilter, "dictsort": dictsort,
		"first": first, "float": floatFilter, "indent": indent, "int": intFilter, "items": itemsFilter, "join": joinFilter, "last": last,
		"length": lengthFilter, "list": listFilter, "lower": onText("lower"), "map": mapFilter, "reject": choose(false, false),
		"rejectattr": choose(false, true), "select": choose(true, false), "selectattr": choose(true, true), "replace": replaceFilter,
		"reverse": reverse, "sort": sortFilter, "string": stringFilter, "title": titleFilter, "tojson": tojson, "trim": trim,
		"unique": unique, "upper": onText("upper"),
	}
}

// onText makes a filter of a string method.
func onText(method string) func(r *state, x any, a args) any {
	return func(r *state, x any, a args) any { return stringMethods[method](r, r.str(x), a) }
}

func lengthFilter(r *state, x any, a args) any {
	r.take(a, 0)
	n, ok := length(x)
	if !ok {
		r.fail("object of type '%s' has no len()", typeName(x))
	}
	return n
}

func defaultFilter(r *state, x any, a args) any {
	v := r.take(a, 0, "default_value", "boolean")
	if x == nil || flag(v[1], false) && !truth(x) {
		if v[0] == (absent{}) {
			return ""
		}
		return v[0]
	}
	return x
}

// folded is a sort key: text without case unless asked.
func (r *state) folded(v any, caseSensitive bool) any {
	if s, ok := v.(string); ok && !caseSensitive {
		r.charge(len(s))
		return lower(s)
	}
	return v
}

// sorted orders items by their keys, equal ones as they came.
func (r *state) sorted(items, keys []any, reverse bool) []any {
	r.charge(40 * len(items))
	at := make([]int, len(items))
	for i := range at {
		at[i] = i
	}
	sort.SliceStable(at, func(i, j int) bool {
		if reverse {
			i, j = j, i
		}
		return r.order(keys[at[i]], keys[at[j]], "<") < 0
	})
	out := make([]any, len(items))
	for i, j := range at {
		out[i] = items[j]
	}
	return out
}

func dictsort(r *state, x any, a args) any {
	v := r.take(a, 0, "case_sensitive", "by", "reverse")
	d, ok := x.(dict)
	if !ok {
		r.fail("dictsort needs a dict, not %s", typeName(x))
	}
	by := r.text(a, v[1], "key")
	if by != "key" && by != "value" {
		r.fail("dictsort: by is key or value, not %q", by)
	}
	var pairs, keys []any
	r.charge(80 * len(d))
	for _, p := range d {
		pairs = append(pairs, tuple{p.key, p.value})
		k := p.key
		if by == "value" {
			k = p.value
		}
		keys = append(keys, r.folded(k, flag(v[0], false)))
	}
	return list(r.sorted(pairs, keys, flag(v[2], false)))
}

func first(r *state, x any, a args) any {
	r.take(a, 0)
	if g, ok := x.(*generator); ok && len(g.items) > 0 {
		v := g.items[0]
		g.items = g.items[1:]
		return v
	}
	if items := r.items(x); len(items) > 0 {
		return items[0]
	}
	return nil
}

func last(r *state, x any, a args) any {
	r.take(a, 0)
	if _, ok := x.(*generator); ok {
		r.fail("'generator' object is not reversible")
	}
	if items := r.items(x); len(items) > 0 {
		return items[len(items)-1]
	}
	return nil
}

func floatFilter(r *state, x any, a args) any {
	v := r.take(a, 0, "default")
	if f, ok := r.parseFloat(x); ok {
		return f
	}
	if v[0] == (absent{}) {
		return 0.0
	}
	return v[0]
}

func (r *state) parseFloat(x any) (float64, bool) {
	r.defined(x)
	if s, ok := x.(string); ok {
		s = strings.TrimFunc(s, isSpace)
		if strings.ContainsAny(s, "xXpP") {
			return 0, false
		}
		f, err := strconv.ParseFloat(s, 64)
		return f, err == nil || math.IsInf(f, 0)
	}
	return asFloat(x)
}

func intFilter(r *state, x any, a args) any {
	v := r.take(a, 0, "default", "base")
	missing := v[0]
	if missing == (absent{}) {
		missing = 0
	}
	base := r.integer(a, v[1], 10)
	if base < 2 || base > 36 {
		r.fail("int: base %d is not supported", base)
	}
	if _, ok := x.(float64); !ok {
		if i, ok := asInt(x); ok {
			return i
		}
	}
	if s, ok := x.(string); ok {
		s = strings.ToLower(strings.TrimFunc(s, isSpace))
		prefix := map[int]string{2: "0b", 8: "0o", 16: "0x"}[base]
		if i, err := strconv.ParseInt(strings.TrimPrefix(strings.ReplaceAll(s, "_", ""), prefix), base, 64); err == nil {
			return int(i)
		}
	}
	f, ok := r.parseFloat(x)
	if !ok || math.IsNaN(f) || math.IsInf(f, 0) {
		return missing
	}
	if math.Abs(f) >= 1<<63 {
		r.fail("int: the number does not fit 64 bits")
	}
	return int(f)
}

func indent(r *state, x any, a args) any {
	v := r.take(a, 0, "width", "first", "blank")
	pad, ok := v[0].(string)
	if !ok {
		n := max(0, r.integer(a, v[0], 4))
		r.charge(n)
		pad = strings.Repeat(" ", n)
	}
	lines := r.lines(r.text(a, x, "")+"\n", false)
	r.charge(len(lines) * (len(pad) + 1))
	var b strings.Builder
	for i, line := range lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		if i == 0 && flag(v[1], false) || i > 0 && (line != "" || flag(v[2], false)) {
			b.WriteString(pad)
		}
		b.WriteString(line)
	}
	return b.String()
}

func itemsFilter(r *state, x any, a args) any {
	r.take(a, 0)
	switch d := x.(type) {
	case nil:
		return &generator{}
	case dict:
		return &generator{r.pairs(d)}
	}
	r.fail("Can only get item pairs from a mapping.")
	return nil
}

func (r *state) pairs(d dict) []any {
	r.charge(64 * len(d))
	out := make([]any, 0, len(d))
	for _, p := range d {
		out = append(out, tuple{p.key, p.value})
	}
	return out
}

func joinFilter(r *state, x any, a args) any {
	v := r.take(a, 0, "d", "attribute")
	sep := ""
	if v[0] != (absent{}) {
		sep = r.str(v[0])
	}
	items := r.items(x)
	if v[1] != (absent{}) {
		items = r.each(items, r.getter(v[1], absent{}))
	}
	parts := make([]string, len(items))
	n := 0
	for i, item := range items {
		parts[i] = r.str(item)
		n += len(parts[i]) + len(sep) + 16
	}
	r.charge(n)
	return strings.Join(parts, sep)
}

func listFilter(r *state, x any, a args) any {
	r.take(a, 0)
	items := r.items(x)
	r.charge(16 * len(items))
	return list(slices.Clone(items))
}

func (r *state) each(items []any, f func(any) any) []any {
	r.charge(16 * len(items))
	out := make([]any, len(items))
	for i, x := range items {
		r.tick(1)
		out[i] = f(x)
	}
	return out
}

// getter follows an attribute: "a.b.0", or an index. Where something is missing it gives the default.
func (r *state) getter(attribute, missing any) func(any) any {
	var path []any
	switch at := attribute.(type) {
	case string:
		for _, part := range strings.Split(at, ".") {
			if i, err := strconv.Atoi(part); err == nil {
				path = append(path, i)
			} else {
				path = append(path, part)
			}
		}
	case int:
		path = []any{at}
	default:
		r.fail("an attribute is a string or an integer, not %s", typeName(attribute))
	}
	return func(x any) any {
		for _, key := range path {
			x = r.item(x, key)
			if x == nil && missing != (absent{}) {
				x = missing
			}
		}
		return x
	}
}

// mapFilter is map(attribute="a") and map("filter", its arguments).
func mapFilter(r *state, x any, a args) any {
	items := r.items(x)
	if len(a.pos) == 0 {
		v := r.take(a, 1, "attribute", "default")
		return &generator{r.each(items, r.getter(v[0], v[1]))}
	}
	name := r.text(a, a.pos[0], "")
	if filters[name] == nil {
		r.fail("the filter %q is not supported", name)
	}
	a = args{name, a.pos[1:], a.named}
	return &generator{r.each(items, func(x any) any { return r.filter(name, x, a) })}
}

// choose is select, reject and, of an attribute, selectattr, rejectattr. Without a test the value itself decides.
func choose(keep, byAttribute bool) func(r *state, x any, a args) any {
	return func(r *state, x any, a args) any {
		of := func(x any) any { return x }
		rest := a.pos
		if byAttribute {
			if len(rest) == 0 {
				r.fail("%s needs an attribute", a.of)
			}
			of, rest = r.getter(rest[0], absent{}), rest[1:]
		}
		test := func(x any, _ args) bool { return truth(x) }
		if len(rest) > 0 {
			name := r.text(a, rest[0], "")
			if tests[name] == nil {
				r.fail("the test %q is not supported", name)
			}
			test = func(x any, a args) bool { return r.test(name, x, a) }
			rest = rest[1:]
		}
		var out []any
		for _, item := range r.items(x) {
			r.tick(1)
			if test(of(item), args{a.of, rest, a.named}) == keep {
				r.charge(16)
				out = append(out, item)
			}
		}
		return &generator{out}
	}
}

func replaceFilter(r *state, x any, a args) any {
	v := r.take(a, 2, "old", "new", "count")
	count := -1
	if v[2] != (absent{}) && v[2] != (none{}) {
		count = r.integer(a, v[2], -1)
	}
	return r.replace(r.str(x), r.str(v[0]), r.str(v[1]), count)
}

func reverse(r *state, x any, a args) any {
	r.take(a, 0)
	if s, ok := x.(string); ok {
		r.charge(5 * len(s))
		runes := []rune(s)
		slices.Reverse(runes)
		return string(runes)
	}
	items := r.items(x)
	r.charge(16 * len(items))
	out := slices.Clone(items)
	slices.Reverse(out)
	return &generator{out}
}

func sortFilter(r *state, x any, a args) any {
	v := r.take(a, 0, "reverse", "case_sensitive", "attribute")
	items := r.items(x)
	get := func(x any) any { return x }
	if v[2] != (absent{}) && v[2] != (none{}) {
		if s, ok := v[2].(string); ok && strings.Contains(s, ",") {
			r.fail("sort by several attributes is not supported")
		}
		get = r.getter(v[2], absent{})
	}
	keys := r.each(items, func(x any) any { return r.folded(get(x), flag(v[1], false)) })
	return list(r.sorted(items, keys, flag(v[0], false)))
}

func stringFilter(r *state, x any, a args) any {
	r.take(a, 0)
	return r.str(x)
}

// titleFilter is Jinja2's own: words begin behind blanks, hyphens and opening brackets only.
func titleFilter(r *state, x any, a args) any {
	r.take(a, 0)
	s := r.str(x)
	r.charge(8 * len(s))
	var b strings.Builder
	b.Grow(len(s))
	c := newCaser()
	word := true
	start := 0
	flush := func(end int) {
		if part := s[start:end]; part != "" {
			_, n := utf8.DecodeRuneInString(part)
			b.WriteString(c.upper(part[:n]))
			b.WriteString(c.lower(part[n:]))
		}
		start = end
	}
	for i, c := range s {
		if boundary := isSpace(c) || strings.ContainsRune("-({[<", c); boundary == word {
			flush(i)
			word = !boundary
		}
	}
	flush(len(s))
	return b.String()
}

func trim(r *state, x any, a args) any {
	v := r.take(a, 0, "chars")
	s := r.str(x)
	return strings.TrimFunc(s, r.cutset(args{of: "trim"}, v[0]))
}

func unique(r *state, x any, a args) any {
	v := r.take(a, 0, "case_sensitive", "attribute")
	get := func(x any) any { return x }
	if v[1] != (absent{}) && v[1] != (none{}) {
		get = r.getter(v[1], absent{})
	}
	var seen, out []any
	for _, item := range r.items(x) {
		key := r.folded(get(item), flag(v[0], false))
		r.hashable(key)
		if !r.contains(list(seen), key) {
			r.charge(32)
			seen = append(seen, key)
			out = append(out, item)
		}
	}
	return &generator{out}
}
