package jinja

import (
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode"
)

// filters are those of Jinja2 that chat templates use. The others (escape, urlize, pprint, ...) make Parse fail. It is filled once by init,
// because the filters that apply others refer to it, and only read after.
var filters map[string]func(r *run, x any, a args) any

func init() {
	filters = map[string]func(r *run, x any, a args) any{
		"abs": absFilter, "attr": attrFilter, "batch": batch, "capitalize": onText("capitalize"), "center": center,
		"count": lengthFilter, "d": defaultFilter, "default": defaultFilter, "dictsort": dictsort, "first": first, "float": floatFilter,
		"format": formatFilter, "indent": indent, "int": intFilter, "items": itemsFilter, "join": joinFilter, "last": last,
		"length": lengthFilter, "list": listFilter, "lower": onText("lower"), "map": mapFilter, "max": extreme(1), "min": extreme(-1),
		"reject": choose(false, false), "rejectattr": choose(false, true), "select": choose(true, false), "selectattr": choose(true, true),
		"replace": replaceFilter, "reverse": reverse, "round": round, "safe": safe, "sort": sortFilter, "string": stringFilter, "sum": sum,
		"title": titleFilter, "tojson": tojson, "trim": trim, "unique": unique, "upper": onText("upper"), "wordcount": wordcount,
	}
}

// soft is what filters on text do with other values.
func (r *run) soft(x any) string {
	r.plain(x)
	return r.str(x)
}

// onText makes a filter of a string method.
func onText(method string) func(r *run, x any, a args) any {
	return func(r *run, x any, a args) any { return stringMethods[method](r, r.soft(x), a) }
}

func absFilter(r *run, x any, a args) any {
	r.take(a, 0)
	r.defined(x)
	if f, ok := x.(float64); ok {
		return math.Abs(f)
	}
	i, ok := asInt(x)
	if !ok || i == math.MinInt64 {
		r.fail("bad operand type for abs(): '%s'", typeName(x))
	}
	return max(i, -i)
}

// attrFilter finds attributes only: no items, as in Jinja2.
func attrFilter(r *run, x any, a args) any {
	key := r.text(a, r.take(a, 1, "name")[0], "")
	if _, isDict := x.(*Dict); isDict {
		if m, ok := r.method(x, key); ok {
			return m
		}
		return r.missing(x, key)
	}
	return r.attr(x, key)
}

func batch(r *run, x any, a args) any {
	v := r.take(a, 1, "linecount", "fill_with")
	n := r.integer(a, v[0], 0)
	if n < 1 {
		r.fail("batch needs a positive count")
	}
	var out []any
	for chunk := range slices.Chunk(r.items(x), n) {
		row := slices.Clone(chunk)
		for v[1] != (absent{}) && v[1] != nil && len(row) < n {
			r.charge(16)
			row = append(row, v[1])
		}
		r.charge(32 + 16*len(row))
		out = append(out, &List{row})
	}
	return &generator{out}
}

func center(r *run, x any, a args) any {
	width := r.integer(a, r.take(a, 0, "width")[0], 80)
	return r.pad(r.soft(x), width, " ", "center")
}

func lengthFilter(r *run, x any, a args) any {
	r.take(a, 0)
	if s, ok := x.(string); ok {
		r.tick(len(s) / 64)
	}
	n, ok := length(x)
	if !ok {
		r.fail("object of type '%s' has no len()", typeName(x))
	}
	return int64(n)
}

func defaultFilter(r *run, x any, a args) any {
	v := r.take(a, 0, "default_value", "boolean")
	if _, undefined := x.(*Undefined); undefined || flag(v[1], false) && !truth(x) {
		if v[0] == (absent{}) {
			return ""
		}
		return v[0]
	}
	return x
}

// folded is a sort key: text without case unless asked.
func (r *run) folded(v any, caseSensitive bool) any {
	if s, ok := v.(string); ok && !caseSensitive {
		r.charge(len(s))
		return lower(s)
	}
	return v
}

// sorted orders items by their keys, equal ones as they came.
func (r *run) sorted(items, keys []any, reverse bool) []any {
	r.charge(40 * len(items))
	at := make([]int, len(items))
	for i := range at {
		at[i] = i
	}
	sort.SliceStable(at, func(i, j int) bool {
		if reverse {
			i, j = j, i
		}
		return r.order(keys[at[i]], keys[at[j]], "<") == -1
	})
	out := make([]any, len(items))
	for i, j := range at {
		out[i] = items[j]
	}
	return out
}

func dictsort(r *run, x any, a args) any {
	v := r.take(a, 0, "case_sensitive", "by", "reverse")
	d, ok := x.(*Dict)
	if !ok {
		r.fail("dictsort needs a dict, not %s", typeName(x))
	}
	by := r.text(a, v[1], "key")
	if by != "key" && by != "value" {
		r.fail("dictsort: by is key or value, not %q", by)
	}
	var pairs, keys []any
	r.charge(80 * d.Len())
	d.All(func(k, val any) {
		pairs = append(pairs, &Tuple{[]any{k, val}})
		if by == "value" {
			k = val
		}
		keys = append(keys, r.folded(k, flag(v[0], false)))
	})
	return &List{r.sorted(pairs, keys, flag(v[2], false))}
}

func first(r *run, x any, a args) any {
	r.take(a, 0)
	if g, ok := x.(*generator); ok && len(g.items) > 0 {
		v := g.items[0]
		g.items = g.items[1:]
		return v
	}
	if items := r.items(x); len(items) > 0 {
		return items[0]
	}
	return &Undefined{"No first item, sequence was empty."}
}

func last(r *run, x any, a args) any {
	r.take(a, 0)
	if _, ok := x.(*generator); ok {
		r.fail("'generator' object is not reversible")
	}
	if items := r.items(x); len(items) > 0 {
		return items[len(items)-1]
	}
	return &Undefined{"No last item, sequence was empty."}
}

func floatFilter(r *run, x any, a args) any {
	v := r.take(a, 0, "default")
	if f, ok := r.parseFloat(x); ok {
		return f
	}
	if v[0] == (absent{}) {
		return 0.0
	}
	return v[0]
}

func (r *run) parseFloat(x any) (float64, bool) {
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

func intFilter(r *run, x any, a args) any {
	v := r.take(a, 0, "default", "base")
	missing := v[0]
	if missing == (absent{}) {
		missing = int64(0)
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
			return i
		}
	}
	f, ok := r.parseFloat(x)
	if !ok || math.IsNaN(f) || math.IsInf(f, 0) {
		return missing
	}
	if math.Abs(f) >= 1<<63 {
		r.fail("int: the number does not fit 64 bits")
	}
	return int64(f)
}

func formatFilter(r *run, x any, a args) any {
	if len(a.names) > 0 {
		d := NewDict()
		for i, n := range a.names {
			d.Set(n, a.named[i])
		}
		return r.percent(r.soft(x), d)
	}
	return r.percent(r.soft(x), &Tuple{a.pos})
}

func indent(r *run, x any, a args) any {
	v := r.take(a, 0, "width", "first", "blank")
	pad, ok := v[0].(string)
	if !ok {
		n := max(0, r.integer(a, v[0], 4))
		r.charge(n)
		pad = strings.Repeat(" ", n)
	}
	lines := r.lines(r.soft(x)+"\n", false)
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

func itemsFilter(r *run, x any, a args) any {
	r.take(a, 0)
	switch d := x.(type) {
	case *Undefined:
		return &generator{}
	case *Dict:
		return &generator{r.pairs(d)}
	}
	r.fail("Can only get item pairs from a mapping.")
	return nil
}

func (r *run) pairs(d *Dict) []any {
	r.charge(64 * d.Len())
	out := make([]any, 0, d.Len())
	d.All(func(k, v any) { out = append(out, &Tuple{[]any{k, v}}) })
	return out
}

func joinFilter(r *run, x any, a args) any {
	v := r.take(a, 0, "d", "attribute")
	sep := ""
	if v[0] != (absent{}) {
		sep = r.soft(v[0])
	}
	items := r.items(x)
	if v[1] != (absent{}) {
		items = r.each(items, r.getter(v[1], absent{}))
	}
	parts := make([]string, len(items))
	n := 0
	for i, item := range items {
		parts[i] = r.soft(item)
		n += len(parts[i]) + len(sep) + 16
	}
	r.charge(n)
	return strings.Join(parts, sep)
}

func listFilter(r *run, x any, a args) any {
	r.take(a, 0)
	items := r.items(x)
	r.charge(16 * len(items))
	return &List{slices.Clone(items)}
}

func (r *run) each(items []any, f func(any) any) []any {
	r.charge(16 * len(items))
	out := make([]any, len(items))
	for i, x := range items {
		r.tick(1)
		out[i] = f(x)
	}
	return out
}

// getter follows an attribute: "a.b.0", or an index. Where something is missing it gives the default.
func (r *run) getter(attribute, missing any) func(any) any {
	var path []any
	switch at := attribute.(type) {
	case string:
		for _, part := range strings.Split(at, ".") {
			if i, err := strconv.ParseInt(part, 10, 64); err == nil {
				path = append(path, i)
			} else {
				path = append(path, part)
			}
		}
	case int64:
		path = []any{at}
	default:
		r.fail("an attribute is a string or an integer, not %s", typeName(attribute))
	}
	return func(x any) any {
		for _, key := range path {
			x = r.item(x, key)
			if _, undefined := x.(*Undefined); undefined && missing != (absent{}) {
				x = missing
			}
		}
		return x
	}
}

// mapFilter is map(attribute="a") and map("filter", its arguments).
func mapFilter(r *run, x any, a args) any {
	items := r.items(x)
	if len(a.pos) == 0 {
		v := r.take(a, 1, "attribute", "default")
		return &generator{r.each(items, r.getter(v[0], v[1]))}
	}
	name := r.text(a, a.pos[0], "")
	f, ok := filters[name]
	if !ok {
		r.fail("the filter %q is not supported", name)
	}
	a = args{name, a.pos[1:], a.names, a.named}
	return &generator{r.each(items, func(x any) any { return f(r, x, a) })}
}

// choose is select, reject and, of an attribute, selectattr, rejectattr. Without a test the value itself decides.
func choose(keep, byAttribute bool) func(r *run, x any, a args) any {
	return func(r *run, x any, a args) any {
		of := func(x any) any { return x }
		rest := a.pos
		if byAttribute {
			if len(rest) == 0 {
				r.fail("%s needs an attribute", a.of)
			}
			of, rest = r.getter(rest[0], absent{}), rest[1:]
		}
		test := func(r *run, x any, _ args) bool { return truth(x) }
		if len(rest) > 0 {
			name := r.text(a, rest[0], "")
			f, ok := tests[name]
			if !ok {
				r.fail("the test %q is not supported", name)
			}
			test, rest = f, rest[1:]
		}
		var out []any
		for _, item := range r.items(x) {
			if test(r, of(item), args{a.of, rest, a.names, a.named}) == keep {
				r.charge(16)
				out = append(out, item)
			}
		}
		return &generator{out}
	}
}

func extreme(sign int) func(r *run, x any, a args) any {
	return func(r *run, x any, a args) any {
		v := r.take(a, 0, "case_sensitive", "attribute")
		get := func(x any) any { return x }
		if v[1] != (absent{}) && v[1] != nil {
			get = r.getter(v[1], absent{})
		}
		var best, bestKey any
		items := r.items(x)
		if len(items) == 0 {
			return &Undefined{"No aggregated item, sequence was empty."}
		}
		for i, item := range items {
			key := r.folded(get(item), flag(v[0], false))
			if i == 0 || r.order(key, bestKey, "<") == sign {
				best, bestKey = item, key
			}
		}
		return best
	}
}

func replaceFilter(r *run, x any, a args) any {
	v := r.take(a, 2, "old", "new", "count")
	count := -1
	if v[2] != (absent{}) && v[2] != nil {
		count = r.integer(a, v[2], -1)
	}
	return r.replace(r.soft(x), r.soft(v[0]), r.soft(v[1]), count)
}

func reverse(r *run, x any, a args) any {
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

func round(r *run, x any, a args) any {
	v := r.take(a, 0, "precision", "method")
	precision, method := r.integer(a, v[0], 0), r.text(a, v[1], "common")
	if precision < 0 || precision > 300 {
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
		if i, ok := asInt(x); ok {
			return i
		}
		f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'f', precision, 64), 64) // its own output always parses
		return f
	case "ceil":
		return math.Ceil(f*scale) / scale
	case "floor":
		return math.Floor(f*scale) / scale
	}
	r.fail("round: method must be common, ceil or floor")
	return nil
}

func safe(r *run, x any, a args) any {
	r.take(a, 0)
	return markup(r.str(x))
}

func sortFilter(r *run, x any, a args) any {
	v := r.take(a, 0, "reverse", "case_sensitive", "attribute")
	items := r.items(x)
	get := func(x any) any { return x }
	if v[2] != (absent{}) && v[2] != nil {
		if s, ok := v[2].(string); ok && strings.Contains(s, ",") {
			r.fail("sort by several attributes is not supported")
		}
		get = r.getter(v[2], absent{})
	}
	keys := r.each(items, func(x any) any { return r.folded(get(x), flag(v[1], false)) })
	return &List{r.sorted(items, keys, flag(v[0], false))}
}

func stringFilter(r *run, x any, a args) any {
	r.take(a, 0)
	if m, ok := x.(markup); ok {
		return m
	}
	return r.str(x)
}

func sum(r *run, x any, a args) any {
	v := r.take(a, 0, "attribute", "start")
	items := r.items(x)
	if v[0] != (absent{}) && v[0] != nil {
		items = r.each(items, r.getter(v[0], absent{}))
	}
	var total any = int64(0)
	if v[1] != (absent{}) {
		total = v[1]
	}
	if _, ok := total.(string); ok {
		r.fail("sum() can't sum strings")
	}
	for _, item := range items {
		r.tick(1)
		total = r.binary("+", total, item)
	}
	return total
}

// titleFilter is Jinja2's own: words begin behind blanks, hyphens and opening brackets only.
func titleFilter(r *run, x any, a args) any {
	r.take(a, 0)
	s := r.soft(x)
	r.charge(8 * len(s))
	var b strings.Builder
	word := true
	start := 0
	flush := func(end int) {
		if part := s[start:end]; part != "" {
			runes := []rune(part)
			b.WriteString(upper(string(runes[:1])) + lower(string(runes[1:])))
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

func trim(r *run, x any, a args) any {
	v := r.take(a, 0, "chars")
	s := r.soft(x)
	r.tick(len(s) / 64)
	return strings.TrimFunc(s, r.cutset(args{of: "trim"}, v[0]))
}

func unique(r *run, x any, a args) any {
	v := r.take(a, 0, "case_sensitive", "attribute")
	get := func(x any) any { return x }
	if v[1] != (absent{}) && v[1] != nil {
		get = r.getter(v[1], absent{})
	}
	seen := map[string]bool{}
	var out []any
	for _, item := range r.items(x) {
		h := r.hash(r.folded(get(item), flag(v[0], false)))
		if !seen[h] {
			r.charge(len(h) + 48)
			seen[h] = true
			out = append(out, item)
		}
	}
	return &generator{out}
}

func wordcount(r *run, x any, a args) any {
	r.take(a, 0)
	s := r.soft(x)
	r.charge(8 * len(s))
	return int64(len(strings.FieldsFunc(s, func(c rune) bool {
		return c != '_' && !unicode.IsLetter(c) && !unicode.IsNumber(c)
	})))
}
