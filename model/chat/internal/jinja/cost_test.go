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

// Every filter, test and method counts what it looks at: over a long text, in a loop, it ends at
// the limit on steps, and soon.
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
		"filter dictsort": "(by='value')",
	}
	// What is not done to the text s.
	on := map[string]string{
		"filter items": "d", "filter dictsort": "d", "filter sort": "l", "filter selectattr": "l",
		"filter rejectattr": "l", "filter sum": "m", "method items": "d", "method keys": "d",
		"method values": "d", "filter list": "s", "filter map": "l", "filter select": "l",
		"filter reject": "l",
	}
	// These look at no more than a type, or fail.
	free := strings.Fields(`abs attr batch center filesizeformat forceescape groupby pprint random
		slice striptags truncate unique urlencode urlize wordcount wordwrap xmlattr round boolean
		callable defined divisibleby escaped even false float integer iterable mapping none number
		odd sequence string true undefined filter lower-test sameas test upper-test get copy format
		safe string-filter float-filter default d int startswith endswith removeprefix
		removesuffix trim strip lstrip rstrip`)
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
	vars, l, m, d := NewDict(), &List{}, &List{}, NewDict()
	for i := range size / 8 {
		l.Items = append(l.Items, lit("abcdefgh"))
		m.Items = append(m.Items, int64(1))
		d.Set(fmt.Sprint(i), int64(1))
	}
	long := strings.Repeat("a", size)
	vars.Set("s", lit(long))
	vars.Set("z", lit(long[:len(long)-1]+"z"))
	vars.Set("l", l)
	vars.Set("m", m)
	vars.Set("d", d)
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
		if !errors.Is(err, ErrLimit) {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
	if len(sources) < 60 {
		t.Errorf("only %d operations", len(sources))
	}
}
