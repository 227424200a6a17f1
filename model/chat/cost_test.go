package chat

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// Every filter, test and method counts what it looks at: a long text in a loop ends at the limit, and soon. The rendering begins with most of
// its steps used up, so that the whole table takes no longer than one of them might.
func TestEveryOperationIsCounted(t *testing.T) {
	const (
		size = 100_000
		left = 10_000 // steps, of which a look at the text is some 800
	)
	// What needs more than the text s: arguments, or something else to work on. The others are called without.
	arguments := map[string]string{
		"filter join": "('')", "filter map": "('upper')", "filter replace": "('b', 'c')", "filter sort": "", "filter dictsort": "(by='value')",
		"filter selectattr": "('x')", "filter rejectattr": "('x')", "filter default": "('x', true)", "filter d": "('x', true)",
		"test divisibleby": "(3)", "test in": "(s)",
		"test eq": "(z)", "test ==": "(z)", "test equalto": "(z)", "test ne": "(z)", "test !=": "(z)",
		"method startswith": "(s)", "method endswith": "(s)", "method removeprefix": "(s)", "method removesuffix": "(s)", "method replace": "('b', 'c')",
		"method partition": "('b')", "method join": "(l)", "method count": "('b')", "method find": "('b')", "method rfind": "('b')", "method index": "(s)",
		"method strip": "(s)", "method split": "('b')", "method get": "('b')",
	}
	for _, op := range []string{"<", "<=", ">", ">=", "lt", "le", "gt", "ge", "lessthan", "greaterthan"} {
		arguments["test "+op] = "(z)"
	}
	on := map[string]string{
		"filter items": "d", "filter dictsort": "d", "filter sort": "l", "filter selectattr": "l", "filter rejectattr": "l",
		"method items": "d", "method keys": "d", "method values": "d", "method get": "d",
		"test odd": "1", "test even": "1", "test divisibleby": "1",
	}
	// These look at nothing.
	free := []string{"test odd", "test even", "test divisibleby", "method copy", "method cycle", "method changed"}
	sources := map[string]string{}
	add := func(kind, name, form string) {
		key := kind + " " + name
		if kind == "test" && typeTests[name] || slices.Contains(free, key) {
			return
		}
		x := on[key]
		if x == "" {
			x = "s"
		}
		sources[key] = fmt.Sprintf(form, x, name, arguments[key])
	}
	for name := range filters {
		add("filter", name, "{%% if %s|%s%s %%}{%% endif %%}")
	}
	for name := range tests {
		if name == "in" {
			sources["test in"] = "{% if s in z %}{% endif %}"
		} else if strings.ContainsAny(name, "=<>") {
			sources["test "+name] = "{% if s " + name + " z %}{% endif %}"
		} else {
			add("test", name, "{%% if %s is %s%s %%}{%% endif %%}")
		}
	}
	for name := range methods {
		form := "{%% if %s.%s%s %%}{%% endif %%}"
		if arguments["method "+name] == "" {
			arguments["method "+name] = "()"
		}
		add("method", name, form)
	}
	list := list{}
	d := dict{}
	for i := range size / 8 {
		list = append(list, "abcdefgh")
		d = append(d, pair{fmt.Sprint(i), 1})
	}
	long := strings.Repeat("a", size)
	vars := dict{{"s", long}, {"z", "a" + long[:len(long)-1] + "z"}, {"l", list}, {"d", d}}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		tmpl, err := Parse("{% for i in range(1000) %}" + sources[name] + "{% endfor %}")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		st := &state{ctx: t.Context(), line: 1, steps: maxSteps - left}
		began := time.Now()
		func() {
			defer func() {
				if p := recover(); p != nil {
					err = failure(p, 1)
				}
			}()
			err = tmpl.t.Execute(&writer{state: st}, st.context(vars))
		}()
		took := time.Since(began)
		if !errors.Is(err, ErrLimit) {
			t.Errorf("%s: %v", name, err)
		}
		if took > patience/10 {
			t.Errorf("%s took %v", name, took)
		}
	}
}
