package chat

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

// named makes a set of templates that print their own name.
func named(t *testing.T, names ...string) *Template {
	t.Helper()
	sources := map[string]string{}
	for _, n := range names {
		sources[n] = n + "{{ tools | length if tools }}"
	}
	tmpl, err := ParseNamed(sources)
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

func TestNamedTemplates(t *testing.T) {
	tool := Tool(`{"type": "function", "function": {"name": "f"}}`)
	for _, tc := range []struct {
		names []string
		opts  Options
		want  string
	}{
		{[]string{"default", "tool_use", "rag"}, Options{}, "default"},
		{[]string{"default", "tool_use", "rag"}, Options{Tools: []Tool{tool}}, "tool_use1"},
		{[]string{"default", "tool_use", "rag"}, Options{Tools: []Tool{tool}, Template: "default"}, "default1"},
		{[]string{"default", "tool_use", "rag"}, Options{Template: "rag"}, "rag"},
		{[]string{"default", "rag"}, Options{Tools: []Tool{tool}}, "default1"},
		{[]string{"tool_use", "rag"}, Options{Tools: []Tool{tool}}, "tool_use1"},
	} {
		tmpl := named(t, tc.names...)
		r, err := tmpl.Render(t.Context(), nil, &tc.opts)
		if err != nil || r.Text != tc.want {
			t.Errorf("%v, %+v: got %q, %v, want %q", tc.names, tc.opts, r.Text, err, tc.want)
		}
		conversation, err := json.Marshal(map[string]any{
			"messages": []any{}, "tools": tc.opts.Tools, "chat_template": tc.opts.Template,
		})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := tmpl.RenderJSON(t.Context(), conversation); err != nil || r.Text != tc.want {
			t.Errorf("%s: got %q, %v, want %q", conversation, r.Text, err, tc.want)
		}
		slices.Sort(tc.names)
		if got := tmpl.Names(); !slices.Equal(got, tc.names) {
			t.Errorf("names %v, want %v", got, tc.names)
		}
	}
}

func TestNoSuchTemplate(t *testing.T) {
	tmpl := named(t, "rag", "tool_use")
	for asked, want := range map[string]string{
		"":     "chat: there is no default chat template: choose one of rag, tool_use",
		"nope": `chat: no chat template is named "nope": choose one of rag, tool_use`,
	} {
		_, err := tmpl.Render(t.Context(), nil, &Options{Template: asked})
		if !errors.Is(err, ErrInput) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := ParseNamed(nil); err == nil {
		t.Error("no templates are a template")
	}
	if got := parse(t, "x").Names(); !slices.Equal(got, []string{"default"}) {
		t.Errorf("names %v", got)
	}
}

// A template that is not valid does not keep the others from being used.
func TestOneOfTheTemplatesIsNotValid(t *testing.T) {
	tmpl, err := ParseNamed(map[string]string{"default": "ok", "rag": "\n{% nope %}"})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := tmpl.Render(t.Context(), nil, nil); err != nil || r.Text != "ok" {
		t.Errorf("got %q, %v", r.Text, err)
	}
	_, err = tmpl.Render(t.Context(), nil, &Options{Template: "rag"})
	var e *Error
	if !errors.Is(err, ErrTemplate) || !errors.As(err, &e) || e.Line != 2 ||
		!strings.HasPrefix(err.Error(), `chat: template "rag" line 2: `) {
		t.Errorf("got %v", err)
	}
	if _, err := ParseNamed(map[string]string{"default": "{% nope %}", "rag": "x"}); !errors.Is(err, ErrTemplate) {
		t.Errorf("got %v", err)
	}
}
