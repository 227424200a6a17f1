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
		var name *NameError
		if !errors.As(err, &name) || err.Error() != want || !slices.Equal(name.Names, []string{"rag", "tool_use"}) {
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
	var parse *ParseError
	if !errors.As(err, &parse) || parse.Line != 2 || !strings.HasPrefix(err.Error(), `chat: template "rag" line 2: `) {
		t.Errorf("got %v", err)
	}
	if _, err := ParseNamed(map[string]string{"default": "{% nope %}", "rag": "x"}); !errors.As(err, &parse) {
		t.Errorf("got %v", err)
	}
}

// The final message stays open, as in transformers 5.24.0.
func TestContinueFinal(t *testing.T) {
	const chatml = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
	const trims = "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}[end]{% endfor %}"
	const parts = "{% for m in messages %}{% for p in m.content %}{{ p.text }};{% endfor %}.{% endfor %}"
	for _, tc := range []struct{ source, message, want string }{
		{chatml, `"content": "The answer is "`, "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nThe answer is "},
		{chatml, `"content": "a\n"`, "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na\n"},
		{chatml, `"content": ""`, "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"},
		{trims, `"content": " The answer is "`, "[user]q[end][assistant]The answer is"},
		{trims, `"content": "x"`, "[user]q[end][assistant]x"},
		{parts, `"content": [{"text": "a"}, {"text": "b "}, {"image": 1}]`, ";.a;b "},
	} {
		conversation := `{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", ` +
			tc.message + `}], "continue_final_message": true}`
		equal(t, parse(t, tc.source), conversation, tc.want)
	}
	r, err := parse(t, chatml).Render(t.Context(),
		[]Message{{Role: "user", Content: "q"}, {Role: "assistant", Content: "open"}}, &Options{ContinueFinal: true})
	if want := "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nopen"; err != nil || r.Text != want {
		t.Errorf("got %q, %v", r.Text, err)
	}
	if last := r.Content[len(r.Content)-1]; r.Text[last.Start:last.End] != "open" {
		t.Errorf("the last content is %q", r.Text[last.Start:last.End])
	}
	user, assistant := Message{Role: "user", Content: "q"}, Message{Role: "assistant", Content: "a"}
	for name, tc := range map[string]struct {
		source   string
		messages []Message
		opts     Options
	}{
		"both ends":           {chatml, []Message{assistant}, Options{ContinueFinal: true, AddGenerationPrompt: true}},
		"a user's message":    {chatml, []Message{assistant, user}, Options{ContinueFinal: true}},
		"nothing":             {chatml, nil, Options{ContinueFinal: true}},
		"no content":          {chatml, []Message{{Role: "assistant", ContentJSON: json.RawMessage("null")}}, Options{ContinueFinal: true}},
		"no text":             {chatml, []Message{{Role: "assistant", ContentJSON: json.RawMessage(`[{"image": 1}]`)}}, Options{ContinueFinal: true}},
		"a constant template": {"x {# content #}", []Message{assistant}, Options{ContinueFinal: true}},
		"nothing read":        {"{{ messages }}", []Message{assistant}, Options{ContinueFinal: true}},
	} {
		_, err := parse(t, tc.source).Render(t.Context(), tc.messages, &tc.opts)
		var input *InputError
		if !errors.As(err, &input) || !strings.HasPrefix(err.Error(), "chat: ") {
			t.Errorf("%s: got %v, want an InputError", name, err)
		}
	}
	_, err = parse(t, chatml).RenderJSON(t.Context(), []byte(
		`{"messages": [{"role": "assistant", "content": "a"}], "continue_final_message": true, "add_generation_prompt": true}`))
	var input *InputError
	if !errors.As(err, &input) {
		t.Errorf("got %v, want an InputError", err)
	}
}
