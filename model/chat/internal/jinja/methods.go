package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// method binds a Python method to its value. It returns nil if there is none, and an *Undefined
// for one that the sandbox refuses.
func (r *run) method(x any, name string) any {
	switch v := x.(type) {
	case str:
		if f, ok := stringMethods[name]; ok {
			return &function{"str." + name, func(r *run, a *args) any { return f(r, v, a) }}
		}
	case *Dict:
		if f, ok := dictMethods[name]; ok {
			return &function{"dict." + name, func(r *run, a *args) any { return f(r, v, a) }}
		}
	case *List:
		if f, ok := listMethods[name]; ok {
			return &function{"list." + name, func(r *run, a *args) any { return f(r, v.Items, a) }}
		}
	case *Tuple:
		if f, ok := listMethods[name]; ok && name != "copy" {
			return &function{"tuple." + name, func(r *run, a *args) any { return f(r, v.items, a) }}
		}
	}
	switch known := python[typeName(x)][name]; known {
	case refused:
		return unsafe(x, name)
	case unsupportedAttr:
		r.fail("%s.%s is not supported", typeName(x), name)
	}
	return nil
}

type access uint8

const (
	refused         access = iota + 1 // by the sandbox
	unsupportedAttr                   // by this package
)

// python lists the other attributes that Python's types have.
var python = map[string]map[string]access{}

func init() {
	add := func(how access, types, names string) {
		for _, typ := range strings.Fields(types) {
			if python[typ] == nil {
				python[typ] = map[string]access{}
			}
			for _, n := range strings.Fields(names) {
				python[typ][n] = how
			}
		}
	}
	add(refused, "list", "append clear extend insert pop remove reverse sort")
	add(refused, "dict", "clear pop popitem setdefault update")
	add(refused, "generator", "gi_frame gi_code")
	add(unsupportedAttr, "dict", "fromkeys")
	add(unsupportedAttr, "generator", "send throw close gi_running gi_suspended gi_yieldfrom")
	add(unsupportedAttr, "str Markup",
		"encode expandtabs format_map isidentifier isprintable istitle maketrans translate")
	add(unsupportedAttr, "Markup", "escape striptags unescape")
	add(unsupportedAttr, "int bool float", "real imag conjugate as_integer_ratio is_integer")
	add(unsupportedAttr, "int bool",
		"numerator denominator bit_length bit_count to_bytes from_bytes")
	add(unsupportedAttr, "float", "hex fromhex")
	add(unsupportedAttr, "dict_keys dict_values dict_items", "mapping isdisjoint")
	add(unsupportedAttr, "range", "start stop step count index")
	add(unsupportedAttr, "Cycler", "items pos")
}

var dictMethods = map[string]func(r *run, d *Dict, a *args) any{
	"items": func(r *run, d *Dict, a *args) any {
		r.none(a)
		return r.view(d, "dict_items")
	},
	"keys": func(r *run, d *Dict, a *args) any {
		r.none(a)
		return r.view(d, "dict_keys")
	},
	"values": func(r *run, d *Dict, a *args) any {
		r.none(a)
		return r.view(d, "dict_values")
	},
	"get": func(r *run, d *Dict, a *args) any {
		v := r.positional(a, 1, 2)
		if value, ok := r.lookup(d, v[0]); ok {
			return value
		}
		if !given(v[1]) {
			return nil
		}
		return v[1]
	},
	"copy": func(r *run, d *Dict, a *args) any { // nothing can change it: it is its own copy
		r.none(a)
		return d
	},
}

var listMethods = map[string]func(r *run, items []any, a *args) any{
	"index": func(r *run, items []any, a *args) any {
		x := r.positional(a, 1, 1)[0]
		for i, y := range items {
			if r.equal(x, y) {
				return int64(i)
			}
		}
		r.fail("the value is not in the list")
		return nil
	},
	"count": func(r *run, items []any, a *args) any {
		x, n := r.positional(a, 1, 1)[0], int64(0)
		for _, y := range items {
			if r.equal(x, y) {
				n++
			}
		}
		return n
	},
	"copy": func(r *run, items []any, a *args) any {
		r.none(a)
		return r.list(items)
	},
}

type stringMethod = func(r *run, s str, a *args) any

// stringMethods are Python's, by code points. Filled once by init: format refers to the table.
var stringMethods map[string]stringMethod

func init() {
	stringMethods = map[string]stringMethod{
		"upper":      mapping((*run).upper),
		"lower":      mapping((*run).lower),
		"casefold":   mapping((*run).casefold),
		"capitalize": mapping((*run).capitalize),
		"title":      mapping((*run).title),
		"swapcase":   mapping((*run).swapcase),
		"strip":      stripping(true, true),
		"lstrip":     stripping(true, false),
		"rstrip":     stripping(false, true),
		"startswith": affix(strings.HasPrefix),
		"endswith":   affix(strings.HasSuffix),
		"removeprefix": func(r *run, s str, a *args) any {
			p := r.string(a, r.positional(a, 1, 1)[0], "").s
			if strings.HasPrefix(s.s, p) {
				return s.cut(len(p), len(s.s))
			}
			return s
		},
		"removesuffix": func(r *run, s str, a *args) any {
			p := r.string(a, r.positional(a, 1, 1)[0], "").s
			if strings.HasSuffix(s.s, p) {
				return s.cut(0, len(s.s)-len(p))
			}
			return s
		},
		"replace":    replaceMethod,
		"split":      splitting(false),
		"rsplit":     splitting(true),
		"splitlines": splitlines,
		"partition":  partition(strings.Index, false),
		"rpartition": partition(strings.LastIndex, true),
		"join":       joinMethod,
		"count": func(r *run, s str, a *args) any {
			part, sub, _ := r.window(s, a)
			r.tick(len(part) / 16)
			if part == "" && sub == "" && len(a.pos) > 1 {
				r.fail("counting nothing in nothing is not supported")
			}
			return int64(strings.Count(part, sub))
		},
		"find":   finding(strings.Index, false),
		"rfind":  finding(strings.LastIndex, false),
		"index":  finding(strings.Index, true),
		"rindex": finding(strings.LastIndex, true),
		"center": padding("center"),
		"ljust":  padding("ljust"),
		"rjust":  padding("rjust"),
		"zfill": func(r *run, s str, a *args) any {
			width := r.integer(a, r.positional(a, 1, 1)[0], 0)
			n := len(signAt(s.s))
			padded := r.pad(s.cut(n, len(s.s)), width-n, lit("0"), "rjust")
			out := r.concat(s.cut(0, n), padded)
			out.safe = s.safe
			return out
		},
		"format":    func(r *run, s str, a *args) any { return r.format(s, a) },
		"isdigit":   all(func(c rune) bool { return unicode.IsDigit(c) || isSuperscript(c) }),
		"isdecimal": all(unicode.IsDigit),
		"isnumeric": all(unicode.IsNumber),
		"isalpha":   all(unicode.IsLetter),
		"isalnum":   all(func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }),
		"isspace":   all(isSpace),
		"islower":   test0(func(r *run, s string) bool { return r.hasCase(s, isLower, isUpper) }),
		"isupper":   test0(func(r *run, s string) bool { return r.hasCase(s, isUpper, isLower) }),
		"isascii": test0(func(r *run, s string) bool {
			return r.every(s, func(c rune) bool { return c <= 0x7f })
		}),
	}
}

func mapping(f func(r *run, s str) str) stringMethod {
	return func(r *run, s str, a *args) any {
		r.none(a)
		return f(r, s)
	}
}

func stripping(left, right bool) stringMethod {
	return func(r *run, s str, a *args) any {
		return r.strip(s, r.cutset(a, r.positional(a, 0, 1)[0]), left, right)
	}
}

// cutset says which characters are stripped: those given, or blanks.
func (r *run) cutset(a *args, chars any) func(rune) bool {
	if chars == nil || !given(chars) {
		return isSpace
	}
	set := map[rune]bool{}
	for part := range r.chunks(r.string(a, chars, "").s) {
		for _, c := range part {
			set[c] = true
		}
		r.charge(32 * len(set))
	}
	return func(c rune) bool { return set[c] }
}

// strip removes characters of a set from the ends.
func (r *run) strip(t str, set func(rune) bool, left, right bool) str {
	from, to := 0, len(t.s)
	for n := 0; left && from < to; n++ {
		if n&0xfff == 0 {
			r.tick(64)
		}
		c, width := utf8.DecodeRuneInString(t.s[from:])
		if !set(c) {
			break
		}
		from += width
	}
	for n := 0; right && from < to; n++ {
		if n&0xfff == 0 {
			r.tick(64)
		}
		c, width := utf8.DecodeLastRuneInString(t.s[from:to])
		if !set(c) {
			break
		}
		to -= width
	}
	return t.cut(from, to)
}

// window reads the arguments sub, start and end. It returns the part of s between start and end,
// and the byte at which it begins.
func (r *run) window(s str, a *args) (part, sub string, from int) {
	v := r.positional(a, 1, 3)
	text, from := r.bounds(s.s, a, v)
	return text, r.string(a, v[0], "").s, from
}

func (r *run) bounds(s string, a *args, v []any) (string, int) {
	from, to := 0, len(s)
	if given(v[1]) && v[1] != nil {
		at := r.integer(a, v[1], 0)
		if at > r.runeCount(s) {
			r.fail("%s: a start after the end is not supported", a.of)
		}
		from = r.offset(s, at)
	}
	if given(v[2]) && v[2] != nil {
		to = r.offset(s, r.integer(a, v[2], 0))
	}
	return s[from:max(from, to)], from
}

// affix is startswith and endswith, of one string or any of a tuple.
func affix(f func(s, part string) bool) stringMethod {
	return func(r *run, s str, a *args) any {
		v := r.positional(a, 1, 3)
		text, _ := r.bounds(s.s, a, v)
		if t, ok := v[0].(*Tuple); ok {
			return slices.ContainsFunc(t.items, func(x any) bool {
				r.tick(1)
				return f(text, r.string(a, x, "").s)
			})
		}
		return f(text, r.string(a, v[0], "").s)
	}
}

func replaceMethod(r *run, s str, a *args) any {
	v := r.positional(a, 2, 3)
	to := r.string(a, v[1], "")
	if s.safe {
		to = r.escape(to)
	}
	out := r.replace(s, r.string(a, v[0], "").s, to, r.integer(a, v[2], -1))
	out.safe = s.safe
	return out
}

func (r *run) replace(s str, from string, to str, count int) str {
	if count < 0 {
		count = len(s.s) + 1
	}
	if count == 0 || from != "" && r.indexOf(s.s, from) < 0 {
		return str{s: s.s, c: s.c}
	}
	b := r.builder()
	b.grow(len(s.s))
	done := 0
	for at := 0; count > 0; count-- {
		r.tick(1)
		i := 0
		if from != "" {
			if i = r.indexIn(s.s[at:], from); i < 0 {
				break
			}
		}
		b.write(s.cut(done, at+i))
		b.write(to)
		done = at + i + len(from)
		at = done
		if from == "" {
			if at == len(s.s) {
				break
			}
			at += r.runeWidth(s.s[at:])
		}
	}
	b.write(s.cut(done, len(s.s)))
	return b.str()
}

// indexIn is strings.Index. It counts what it has passed, so that a walk over all places where sub
// is takes time in proportion to s once.
func (r *run) indexIn(s, sub string) int {
	i := strings.Index(s, sub)
	if i < 0 {
		r.tick(len(s) / 64)
	} else {
		r.tick(i / 64)
	}
	return i
}

func (r *run) separator(a *args, v any) str {
	sep := r.string(a, v, "")
	if sep.s == "" {
		r.fail("empty separator")
	}
	return sep
}

func splitting(fromRight bool) stringMethod {
	return func(r *run, s str, a *args) any {
		v := r.take(a, 0, "sep", "maxsplit")
		most := r.integer(a, v[1], -1)
		if v[0] == nil || !given(v[0]) {
			return r.strings(r.fields(s, most, fromRight))
		}
		return r.strings(r.split(s, r.separator(a, v[0]), most, fromRight))
	}
}

func (r *run) strings(parts []str) *List {
	r.charge(48 * len(parts))
	out := make([]any, len(parts))
	for i, p := range parts {
		out[i] = p
	}
	return r.list(out)
}

// split cuts s at sep, at most that many times unless negative, from the right if asked.
func (r *run) split(s, sep str, most int, fromRight bool) []str {
	var parts []str
	from, to := 0, len(s.s)
	for ; most != 0; most-- {
		r.charge(32)
		if fromRight {
			i := strings.LastIndex(s.s[:to], sep.s)
			r.tick((to - max(i, 0)) / 64)
			if i < 0 {
				break
			}
			parts = append(parts, s.cut(i+len(sep.s), to))
			to = i
			continue
		}
		i := r.indexIn(s.s[from:], sep.s)
		if i < 0 {
			break
		}
		parts = append(parts, s.cut(from, from+i))
		from += i + len(sep.s)
	}
	parts = append(parts, s.cut(from, to))
	if fromRight {
		slices.Reverse(parts)
	}
	return parts
}

// fields splits at runs of blanks. What is left after the last split keeps its inner blanks.
func (r *run) fields(s str, most int, fromRight bool) []str {
	var parts []str
	for ; ; most-- {
		r.charge(32)
		s = r.strip(s, isSpace, !fromRight, fromRight)
		if s.s == "" {
			break
		}
		i := r.word(s.s, fromRight)
		if most == 0 {
			i = len(s.s)
			if fromRight {
				i = 0
			}
		}
		if fromRight {
			parts = append(parts, s.cut(i, len(s.s)))
			s = s.cut(0, i)
		} else {
			parts = append(parts, s.cut(0, i))
			s = s.cut(i, len(s.s))
		}
	}
	if fromRight {
		slices.Reverse(parts)
	}
	return parts
}

// word is where the first word of s ends, or where the last one begins.
func (r *run) word(s string, last bool) int {
	if !last {
		at := 0
		for part := range r.chunks(s) {
			if i := strings.IndexFunc(part, isSpace); i >= 0 {
				return at + i
			}
			at += len(part)
		}
		return at
	}
	at := len(s)
	for n := 1; at > 0; n++ {
		if n&0xfff == 0 {
			r.tick(64)
		}
		c, width := utf8.DecodeLastRuneInString(s[:at])
		if isSpace(c) {
			break
		}
		at -= width
	}
	return at
}

func splitlines(r *run, s str, a *args) any {
	return r.strings(r.lines(s, r.flag(r.take(a, 0, "keepends")[0], false)))
}

func isLineEnd(c rune) bool {
	switch c {
	case '\n', '\r', '\v', '\f', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029:
		return true
	}
	return false
}

// lines splits s at everything that ends a line in Python.
func (r *run) lines(s str, keep bool) []str {
	var out []str
	begin := 0
	for at, n := 0, 0; at < len(s.s); n++ {
		if n&0xfff == 0 {
			r.tick(64)
		}
		c, width := utf8.DecodeRuneInString(s.s[at:])
		end := at + width
		if !isLineEnd(c) {
			at = end
			continue
		}
		if c == '\r' && strings.HasPrefix(s.s[end:], "\n") {
			end++
		}
		r.charge(64)
		if keep {
			at = end
		}
		out = append(out, s.cut(begin, at))
		begin, at = end, end
	}
	if begin < len(s.s) {
		out = append(out, s.cut(begin, len(s.s)))
	}
	return out
}

func partition(find func(s, sep string) int, last bool) stringMethod {
	return func(r *run, s str, a *args) any {
		sep := r.separator(a, r.positional(a, 1, 1)[0])
		r.tick(len(s.s) / 64)
		i := find(s.s, sep.s)
		none := str{safe: s.safe}
		switch {
		case i >= 0:
			sep.safe = s.safe
			return &Tuple{items: []any{s.cut(0, i), sep, s.cut(i+len(sep.s), len(s.s))}}
		case last:
			return &Tuple{items: []any{none, none, s}}
		}
		return &Tuple{items: []any{s, none, none}}
	}
}

func joinMethod(r *run, s str, a *args) any {
	var parts []str
	over := r.positional(a, 1, 1)[0]
	next := r.iterate(over)
	for x, ok := next(); ok; x, ok = next() {
		part, isString := x.(str)
		if s.safe {
			part, isString = r.escape(r.soft(x)), true
		}
		if !isString {
			r.fail("sequence item %d: expected str instance, %s found", len(parts), typeName(x))
		}
		r.charge(32)
		parts = append(parts, part)
	}
	out := r.join(s, parts)
	out.safe = s.safe
	return out
}

// finding gives positions in characters. Where there is none it gives -1 or fails.
func finding(f func(s, sub string) int, must bool) stringMethod {
	return func(r *run, s str, a *args) any {
		part, sub, from := r.window(s, a)
		r.tick(len(part) / 32)
		i := f(part, sub)
		if i < 0 && must {
			r.fail("substring not found")
		}
		if i < 0 {
			return int64(-1)
		}
		return int64(r.runeCount(s.s[:from+i]))
	}
}

func padding(how string) stringMethod {
	return func(r *run, s str, a *args) any {
		v := r.positional(a, 1, 2)
		fill := r.string(a, v[1], " ")
		if s.safe {
			fill = r.escape(fill)
		}
		if r.runeCount(fill.s) != 1 {
			r.fail("the fill character must be exactly one character long")
		}
		return r.pad(s, r.integer(a, v[0], 0), fill, how)
	}
}

func (r *run) pad(s str, width int, fill str, how string) str {
	n := max(0, width-r.runeCount(s.s))
	left := n
	switch how {
	case "ljust":
		left = 0
	case "center":
		left = n/2 + n&width&1
	}
	before, _ := r.repeat(fill, int64(left))
	after, _ := r.repeat(fill, int64(n-left))
	out := r.join(str{}, []str{before.(str), s, after.(str)})
	out.safe = s.safe
	return out
}

// every reports whether f holds for all characters of s.
func (r *run) every(s string, f func(rune) bool) bool {
	for part := range r.chunks(s) {
		for _, c := range part {
			if !f(c) {
				return false
			}
		}
	}
	return true
}

func all(f func(rune) bool) stringMethod {
	return test0(func(r *run, s string) bool { return s != "" && r.every(s, f) })
}

func test0(f func(r *run, s string) bool) stringMethod {
	return func(r *run, s str, a *args) any {
		r.none(a)
		return f(r, s.s)
	}
}
