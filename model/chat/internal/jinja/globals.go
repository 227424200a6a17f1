package jinja

import (
	"fmt"
	"strings"
	"time"
)

const (
	maxRange  = 100_000 // items; the sandbox's limit
	maxFormat = 1 << 10 // bytes of a format of strftime_now
)

// globals are the builtin functions.
var globals = map[string]*function{
	"raise_exception": {"raise_exception", raiseException}, "strftime_now": {"strftime_now", strftimeNow},
	"range": {"range", newRange},
	"dict":  {"dict", func(r *run, a *args) any { return makeDict(r, a) }},
	"namespace": {"namespace", func(r *run, a *args) any {
		d := makeDict(r, a)
		d.All(func(name string, _ any) { checkName(r, name) })
		return &namespace{d}
	}},
}

func raiseException(r *run, a *args) any {
	message := textOf(r, takeArgs(r, a, 1, "message")[0])
	panic(failure{&Error{RaisedError, r.line, clip(message.s), nil}})
}

func strftimeNow(r *run, a *args) any {
	format := stringArg(r, a, takeArgs(r, a, 1, "format")[0], "")
	if len(format.s) > maxFormat {
		r.limit("strftime_now: the format has %d bytes; the limit is %d", len(format.s), maxFormat)
	}
	r.charge(32 * len(format.s))
	s, err := r.env.Strftime(format.s)
	r.failIf(err != nil, "strftime_now: %v", err)
	if format.c != nil {
		return str{s: s, c: whole}
	}
	return lit(s)
}

// makeDict is Python's dict: it accepts a mapping or pairs, and keyword arguments.
func makeDict(r *run, a *args) *Dict {
	d := NewDict()
	r.failIf(len(a.pos) > 1, "%s takes at most one positional argument", a.of)
	for _, from := range a.pos {
		r.defined(from)
		if m, ok := from.(*Dict); ok {
			from = newView(r, m, "dict_items")
		}
		for _, pair := range itemsOf(r, from) {
			kv := itemsOf(r, pair)
			r.failIf(len(kv) != 2, "%s needs pairs of a key and a value", a.of)
			setItem(r, d, kv[0], kv[1])
		}
	}
	for i, n := range a.names {
		setItem(r, d, n, a.named[i])
	}
	return d
}

func newRange(r *run, a *args) any {
	v := takeArgs(r, a, 1, "", "", "")
	for i := range v {
		if n, ok := asInt(v[i]); given(v[i]) && (!ok || n < -maxNumber || n >= maxNumber) {
			r.fail("range of a %s or of more than 30 bits is not supported", typeName(v[i]))
		}
	}
	start, stop, step := 0, integerArg(r, a, v[0], 0), integerArg(r, a, v[2], 1)
	if given(v[1]) {
		start, stop = stop, integerArg(r, a, v[1], 0)
	}
	r.failIf(step == 0, "range() arg 3 must not be zero")
	out := &view{typ: "range"}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(out.items) == maxRange {
			r.limit("range too big: the sandbox blocks ranges larger than %d", maxRange)
		}
		r.charge(24)
		out.items = append(out.items, int64(i))
	}
	return out
}

// Strftime formats a time like C's strftime in the C locale.
func Strftime(t time.Time, format string) (string, error) {
	var b strings.Builder
	for {
		plain, rest, found := strings.Cut(format, "%")
		b.WriteString(plain)
		if !found {
			return b.String(), nil
		}
		unpadded := strings.HasPrefix(rest, "-")
		rest = strings.TrimPrefix(rest, "-")
		if rest == "" {
			return "", fmt.Errorf("the format %q ends in %%", format)
		}
		text, ok := directive(t, rest[0])
		if !ok {
			return "", fmt.Errorf("the directive %%%c is not supported", rest[0])
		}
		if unpadded {
			if text = strings.TrimLeft(text, "0 "); text == "" {
				text = "0"
			}
		}
		b.WriteString(text)
		format = rest[1:]
	}
}

// layouts are the layouts of package time for the directives of strftime.
var layouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'd': "02", 'm': "01", 'y': "06",
	'Y': "2006", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'j': "002", 'e': "_2",
	'z': "-0700", 'Z': "MST", 'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'D': "01/02/06",
	'x': "01/02/06", 'X': "15:04:05", 'c': "Mon Jan _2 15:04:05 2006",
}

func directive(t time.Time, c byte) (string, bool) {
	switch c {
	case '%':
		return "%", true
	case 'w':
		return fmt.Sprint(int(t.Weekday())), true
	case 'u':
		return fmt.Sprint((int(t.Weekday())+6)%7 + 1), true
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), true
	}
	layout, ok := layouts[c]
	return t.Format(layout), ok
}
