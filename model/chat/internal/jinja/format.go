package jinja

import (
	"math"
	"regexp"
	"strconv"
	"strings"
)

var (
	conversion = regexp.MustCompile(`^%(-?)(0?)(\d{0,3})(\.\d{1,2})?([sdif%]?)`)
	field      = regexp.MustCompile(`^(?:\{\{|\}\}|\{(\w*)\}|[{}])`)
)

// replaceMatches returns text with every match of re replaced by the result of f for its
// submatches. re must match wherever text has one of the characters in begin.
func replaceMatches(r *run, text str, begin string, re *regexp.Regexp,
	f func(at str, parts []string) str) str {
	r.failIf(text.safe, "a format that is a Markup is not supported")
	r.failIf(len(text.s) > 64<<10, "a format of more than 64 KiB is not supported")
	b := &builder{r: r}
	for {
		i := strings.IndexAny(text.s, begin)
		if r.tick(max(i, 0) / 16); i < 0 {
			break
		}
		b.write(text.cut(0, i))
		text = text.cut(i, len(text.s))
		parts := re.FindStringSubmatch(text.s)
		r.charge(32*len(parts) + len(parts[0]))
		b.write(f(text.cut(0, len(parts[0])), parts))
		text = text.cut(len(parts[0]), len(text.s))
	}
	b.write(text)
	return b.str()
}

// percent is text % values. It supports %s, %d, %i, %f and %%, with the flags - and 0, a width and
// a precision, which is all that templates use.
func percent(r *run, text str, values any) str {
	args := []any{values}
	if t, ok := values.(*Tuple); ok {
		args = t.items
	}
	out := replaceMatches(r, text, "%", conversion, func(at str, parts []string) str {
		if at.s == "%%" {
			return at.cut(0, 1)
		}
		r.failIf(len(args) == 0, "not enough arguments for format string")
		v := args[0]
		args = args[1:]
		return convertValue(r, v, parts)
	})
	isTuple, isString := typeName(values) == "tuple", typeName(values) == "str"
	left := len(args) > 0 && (isTuple || isString || !isSequence(r, values)) // a dict may be left
	r.failIf(left, "not all arguments converted during string formatting")
	return out
}

// convertValue formats v. parts are the submatches of conversion.
func convertValue(r *run, v any, parts []string) str {
	left, zero, typ := parts[1] != "", parts[2] != "" && parts[1] == "" && parts[5] != "s", parts[5]
	width, _ := strconv.Atoi(parts[3]) // the regular expression matches digits only
	precision, hasPrecision := 6, parts[4] != ""
	if hasPrecision {
		precision, _ = strconv.Atoi(parts[4][1:])
	}
	text := textOf(r, v)
	f, isNumber := asFloat(v)
	switch {
	case typ == "s" && hasPrecision:
		text = text.cut(0, runeOffset(r, text.s, precision))
	case typ == "s":
	case (typ == "d" || typ == "i") && isNumber && !hasPrecision && math.Abs(f) < 1<<53:
		text = lit(strconv.FormatInt(int64(f), 10))
	case typ == "f" && isNumber && f-f == 0:
		text = lit(strconv.FormatFloat(f, 'f', precision, 64))
	default:
		r.fail("the format %q of a %s is not supported", parts[0], typeName(v))
	}
	pad := max(0, width-runeCount(r, text.s))
	sign := len(text.s) - len(strings.TrimLeft(text.s, "-")) // only numbers are padded with zeros
	switch {
	case left:
		return joinStr(r, str{}, text, lit(strings.Repeat(" ", pad)))
	case zero:
		return joinStr(r, str{}, text.cut(0, sign), lit(strings.Repeat("0", pad)), text.cut(sign, len(text.s)))
	}
	return joinStr(r, str{}, lit(strings.Repeat(" ", pad)), text)
}

// formatStr is text.format(...). It supports the fields {} and {name}.
func formatStr(r *run, text str, a *args) str {
	turn := 0
	return replaceMatches(r, text, "{}", field, func(at str, parts []string) str {
		if at.s == "{{" || at.s == "}}" {
			return at.cut(0, 1)
		}
		i, values := findKeyword(r, a, parts[1]), a.named
		if at.s == "{}" {
			i, values = turn, a.pos
			turn++
		}
		r.failIf(i < 0 || i >= len(values), "the format field %q has no argument or is not supported", at.s)
		return textOf(r, values[i])
	})
}
