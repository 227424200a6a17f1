package jinja

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// Every filter, test and method counts the text that it reads: 1,000 times 100 kB of any letter
// exceed 20,000 steps.
func TestEveryOperationIsCounted(t *testing.T) {
	const size = 100_000
	arguments := map[string]string{
		"filter join": "('')", "filter map": "('upper')", "filter replace": "('b', 'c')",
		"filter selectattr": "('x')", "filter rejectattr": "('x')", "filter default": "('x', true)",
		"filter d": "('x', true)", "test in": "(s)", "method startswith": "(s)",
		"method endswith": "(s)", "method removeprefix": "(s)", "method removesuffix": "(s)",
		"method replace": "('b', 'c')", "method partition": "('b')", "method rpartition": "('b')", "method join": "(l)",
		"method count": "('b')", "method find": "('b')", "method rfind": "('b')",
		"method index": "(s)", "method rindex": "(s)", "method split": "('b')",
		"filter dictsort": "(by='value')", "filter trim": "(c)", "method strip": "(c)",
		"method lstrip": "(c)", "method rstrip": "(c)",
	}
	// The operand, if it is not the text s.
	on := map[string]string{
		"filter items": "d", "filter dictsort": "d", "filter sort": "l", "filter selectattr": "l",
		"filter rejectattr": "l", "filter sum": "m", "method items": "d", "method keys": "d",
		"method values": "d", "filter list": "s", "filter map": "l", "filter select": "l",
		"filter reject": "l",
	}
	// These read no more than a type, or fail.
	free := strings.Fields(`abs attr batch center filesizeformat forceescape groupby pprint random
		slice striptags truncate urlencode urlize wordcount wordwrap xmlattr round boolean
		callable defined divisibleby escaped even false float integer iterable mapping none number
		odd sequence string true undefined filter lower-test sameas test upper-test get copy format
		safe string-filter float-filter default d int`)
	sources := map[string]string{}
	add := func(kind, name, form string) {
		key := kind + " " + name
		if slices.Contains(free, name) || slices.Contains(free, name+"-"+kind) {
			return
		}
		x := on[key]
		if x == "" {
			x = "s"
		}
		sources[key] = fmt.Sprintf(form, x, name, arguments[key])
	}
	for name := range filters {
		add("filter", name, "{%% if (%s|%s%s) | first %%}{%% endif %%}")
	}
	for _, name := range []string{"length", "count", "first", "last", "indent", "tojson", "upper", "lower"} {
		sources["filter "+name] = "{% if s | " + name + " %}{% endif %}"
	}
	for name := range tests {
		if strings.ContainsAny(name, "=<>") || name == "in" {
			sources["test "+name] = "{% if s " + name + " z %}{% endif %}"
		} else {
			arguments["test "+name] = "(z)"
			add("test", name, "{%% if %s is %s%s %%}{%% endif %%}")
		}
	}
	for name := range stringMethods {
		if arguments["method "+name] == "" {
			arguments["method "+name] = "()"
		}
		add("method", name, "{%% if %s.%s%s %%}{%% endif %%}")
	}
	for _, name := range []string{"items", "keys", "values"} {
		sources["method "+name] = "{% if d." + name + "() %}{% endif %}"
	}
	delete(sources, "filter first")
	sources["filter sum"] = "{% if m | sum %}{% endif %}"
	if len(sources) < 60 {
		t.Errorf("only %d operations", len(sources))
	}
	l, m, d := &List{}, &List{}, NewDict()
	for i := range size / 8 {
		l.Items = append(l.Items, lit("abcdefgh"))
		m.Items = append(m.Items, int64(1))
		d.Set(fmt.Sprint(i), int64(1))
	}
	for _, letter := range []string{"a", "é", "世", "𝒜", "ﬁ", " ", "\n", "\u2028"} {
		long := strings.Repeat(letter, size/len(letter))
		other := long[len(letter):] + strings.Repeat("z", len(letter))
		vars := NewDict()
		for name, v := range map[string]any{
			"s": lit(long), "z": lit(other), "c": lit(letter), "l": l, "m": m, "d": d,
		} {
			vars.Set(name, v)
		}
		for _, name := range slices.Sorted(maps.Keys(sources)) {
			tmpl, err := Parse("{% for i in range(1000) %}" + sources[name] + "{% endfor %}")
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			began := time.Now()
			_, _, err = tmpl.render(&run{
				ctx: t.Context(), vars: vars, line: 1, looked: began, maxSteps: 20_000, maxBytes: maxBytes,
			})
			// Uncounted work ends at the limit too, by the clock, but late.
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("%s of %q took %v: its work is hardly counted", name, letter, took)
			}
			if !errors.Is(err, ErrLimit) {
				t.Errorf("%s of %q: %v", name, letter, err)
			}
		}
	}
}
