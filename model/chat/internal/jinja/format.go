package jinja

import (
	"math"
	"strconv"
	"strings"
)

// percent is text % values. Of printf it has what templates use: %s, %d, %i, %f and %%, with the
// flags - and 0, a width and a precision.
func (r *run) percent(text str, values any) str {
	r.failIf(text.safe, "formatting the result of the filter safe is not supported")
	b := &builder{r: r}
	args, named := []any{values}, false
	switch v := values.(type) {
	case *Tuple:
		args = v.items
	case *Dict:
		named = true
	}
	for rest := text; ; {
		i := r.indexOf(rest.s, "%")
		if i < 0 {
			b.write(rest)
			r.failIf(len(args) > 0 && !named, "not all arguments converted during string formatting")
			return b.str()
		}
		b.write(rest.cut(0, i))
		form := rest.s[i+1:]
		form = form[:min(len(form), len(form)-len(strings.TrimLeft(form, "-0123456789."))+1)]
		rest = rest.cut(i+1+len(form), len(rest.s))
		if form == "%" {
			b.raw("%")
			continue
		}
		r.failIf(len(args) == 0, "not enough arguments for format string")
		b.write(r.convert(args[0], form))
		args = args[1:]
	}
}

// convert writes v in a form of printf.
func (r *run) convert(v any, form string) str {
	left := strings.HasPrefix(form, "-")
	size, typ, ok := strings.TrimLeft(form, "-"), "", form != ""
	if ok {
		size, typ = size[:len(size)-1], size[len(size)-1:]
	}
	zero := strings.HasPrefix(size, "0") && !left && typ != "s"
	width, precision, hasPrecision := strings.Cut(size, ".")
	n, err := strconv.Atoi("0" + width)
	digits, precisionErr := strconv.Atoi("0" + precision)
	ok = ok && err == nil && precisionErr == nil && max(n, digits) < 1<<12
	text := r.text(v)
	f, isNumber := asFloat(v)
	switch {
	case typ == "s" && hasPrecision:
		text = text.cut(0, r.offset(text.s, digits))
	case typ == "s":
	case (typ == "d" || typ == "i") && isNumber && !hasPrecision && math.Abs(f) < 1<<53:
		text = lit(strconv.FormatInt(int64(f), 10))
	case typ == "f" && isNumber && !math.IsInf(f, 0) && !math.IsNaN(f):
		if !hasPrecision {
			digits = 6
		}
		text = lit(strconv.FormatFloat(f, 'f', digits, 64))
	default:
		ok = false
	}
	r.failIf(!ok, "the format %q of a %s is not supported", clip("%"+form), typeName(v))
	pad := lit(strings.Repeat(" ", max(0, n-r.runeCount(text.s))))
	switch {
	case left:
		return r.concat(text, pad)
	case zero:
		sign := len(signAt(text.s))
		pad.s = strings.Repeat("0", len(pad.s))
		return r.join(str{}, text.cut(0, sign), pad, text.cut(sign, len(text.s)))
	}
	return r.concat(pad, text)
}

// format is text.format(...). A field names an argument by position or keyword; how it is written
// cannot be chosen.
func (r *run) format(text str, a *args) str {
	b := &builder{r: r}
	auto, numbered := 0, false
	for rest := text; ; {
		i := strings.IndexAny(rest.s, "{}")
		if r.tick(1 + max(i, 0)/64); i < 0 {
			b.write(rest)
			return b.str()
		}
		b.write(rest.cut(0, i))
		field := rest.s[i:]
		if strings.HasPrefix(field, "{{") || strings.HasPrefix(field, "}}") {
			b.write(rest.cut(i, i+1))
			rest = rest.cut(i+2, len(rest.s))
			continue
		}
		end := strings.IndexByte(field, '}')
		r.failIf(end <= 0, "a single { or } in a format string")
		rest = rest.cut(i+end+1, len(rest.s))
		name := field[1:end]
		at, err := strconv.Atoi(name)
		if name == "" {
			at, err = auto, nil
			auto++
		} else if err == nil {
			numbered = true
		} else {
			at = a.find(name)
		}
		values := a.pos
		if err != nil {
			values = a.named
		}
		r.failIf(numbered && auto > 0, "a format string numbers some of its fields and not others")
		r.failIf(at < 0 || at >= len(values), "the format field {%s} has no argument, or is not supported", name)
		b.write(r.text(values[at]))
	}
}
