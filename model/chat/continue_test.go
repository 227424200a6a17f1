package chat

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// TestContinueFinal compares with transformers' continue_final_message: the text ends with the
// content of the final message, trimmed at its end only if the template trims.
func TestContinueFinal(t *testing.T) {
	const (
		each    = "{% for m in messages %}"
		plain   = each + "[{{ m.role }}]{{ m.content }}<end>{% endfor %}"
		trims   = each + "[{{ m.role }}]{{ m.content | trim }}<end>{% endfor %}"
		ofParts = each + "[{{ m.role }}]{% for p in m.content %}{{ p.text }};{% endfor %}<end>{% endfor %}"
		twice   = each + "{{ m.content }}|{{ m.content }}<end>{% endfor %}"
		upper   = each + "{{ m.content | upper }}<end>{% endfor %}"
		drops   = each + "{{ m.content if m.role == 'user' }}<end>{% endfor %}"
		ignores = each + "{{ m.role }}{% endfor %}"
	)
	for name, tc := range map[string]struct{ template, role, content, want string }{
		"text":                {plain, "assistant", `"So"`, "[user]Hi<end>[assistant]So"},
		"a blank at the end":  {plain, "assistant", `"So "`, "[user]Hi<end>[assistant]So "},
		"lines at both ends":  {plain, "assistant", `"\n So\n"`, "[user]Hi<end>[assistant]\n So\n"},
		"trimmed":             {trims, "assistant", `"So"`, "[user]Hi<end>[assistant]So"},
		"trimmed at the end":  {trims, "assistant", `"So \n"`, "[user]Hi<end>[assistant]So"},
		"trimmed at the ends": {trims, "assistant", `" So "`, "[user]Hi<end>[assistant]So"},
		"empty":               {plain, "assistant", `""`, "[user]Hi<end>[assistant]"},
		"the template's text": {plain, "assistant", `"<end>"`, "[user]Hi<end>[assistant]<end>"},
		"the last place":      {twice, "assistant", `"So"`, "Hi|Hi<end>SoCONTINUE_FINAL_MESSAGE_TAG |So"},
		"a part": {ofParts, "assistant", `[{"type": "text", "text": "So "}]`,
			"[user];;<end>[assistant]So "},
		"the last part with text": {ofParts, "assistant", `[{"text": "A"}, {"text": "B "}, {"image": 1}]`,
			"[user];;<end>[assistant]A;B "},
		"null":             {plain, "assistant", `null`, "error: no text"},
		"no text in parts": {ofParts, "assistant", `[{"type": "image"}]`, "error: no text"},
		"a user":           {plain, "user", `"So"`, `error: has the role "user"`},
		"changed":          {upper, "assistant", `"So"`, "error: changes the final message"},
		"left out":         {drops, "assistant", `"So"`, "error: changes the final message"},
		"printed as a value": {"{{ messages }}{# content #}", "assistant", `"So"`,
			"[{'role': 'user', 'content': 'Hi'}, {'role': 'assistant', 'content': 'So"},
		"a constant template":   {"x{# content #}", "assistant", `"So"`, "error: changes the final message"},
		"a template without it": {ignores, "assistant", `"So"`, "error: reads no content"},
	} {
		t.Run(name, func(t *testing.T) {
			tmpl := parse(t, tc.template)
			check := func(r Rendered, err error) {
				t.Helper()
				if message, fails := strings.CutPrefix(tc.want, "error: "); fails {
					if !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), message) {
						t.Errorf("got %q, %v, want the error %q", r.Text, err, message)
					}
				} else if err != nil || r.Text != tc.want {
					t.Errorf("got %q, %v, want %q", r.Text, err, tc.want)
				} else if n := len(r.Content); n > 0 && r.Content[n-1].End > len(r.Text) {
					t.Errorf("content ends at %d of %d", r.Content[n-1].End, len(r.Text))
				}
			}
			check(tmpl.RenderJSON(t.Context(), []byte(`{"messages": [{"role": "user", "content": "Hi"},
				{"role": "`+tc.role+`", "content": `+tc.content+`}], "continue_final_message": true}`)))
			check(tmpl.Render(t.Context(), []Message{{Role: "user", Content: "Hi"},
				{Role: tc.role, ContentJSON: json.RawMessage(tc.content)}}, &Options{ContinueFinal: true}))
		})
	}
	tmpl := parse(t, plain)
	r, err := tmpl.Render(t.Context(),
		[]Message{{Role: "user", Content: "q"}, {Role: "assistant", Content: "open"}},
		&Options{ContinueFinal: true})
	if got, want := marked(r), "[user]«q»<end>[assistant]«open»"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	both := &Options{ContinueFinal: true, AddGenerationPrompt: true}
	_, err = tmpl.Render(t.Context(), []Message{{Role: "assistant", Content: "a"}}, both)
	if !errors.Is(err, ErrInput) {
		t.Errorf("with a generation prompt: %v, want an ErrInput", err)
	}
	for _, conversation := range []string{
		`{"messages": [], "continue_final_message": true}`,
		`{"messages": [{"role": "assistant", "content": "a"}], "continue_final_message": true,
			"add_generation_prompt": true}`,
		`{"messages": [{"role": "assistant", "content": "a"}], "continue_final_message": 1}`,
	} {
		_, err := tmpl.RenderJSON(t.Context(), []byte(conversation))
		if !errors.Is(err, ErrInput) || !strings.HasPrefix(err.Error(), "chat: ") {
			t.Errorf("%s: %v, want an ErrInput", conversation, err)
		}
	}
}
