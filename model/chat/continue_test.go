package chat

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// A final message is continued as transformers' continue_final_message does: the text ends with that
// message's content, trimmed at its end only if the template trims.
func TestContinueFinal(t *testing.T) {
	const (
		plain   = "{% for m in messages %}[{{ m.role }}]{{ m.content }}<end>{% endfor %}"
		trims   = "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}<end>{% endfor %}"
		ofParts = "{% for m in messages %}[{{ m.role }}]{% for p in m.content %}{{ p.text | default('') }}{% endfor %}<end>{% endfor %}"
		twice   = "{% for m in messages %}{{ m.content }}|{{ m.content }}<end>{% endfor %}"
		upper   = "{% for m in messages %}{{ m.content | upper }}<end>{% endfor %}"
		drops   = "{% for m in messages %}{{ m.content if m.role == 'user' }}<end>{% endfor %}"
		ignores = "{% for m in messages %}{{ m.role }}{% endfor %}"
	)
	for name, tc := range map[string]struct{ template, role, content, want string }{
		"text":                     {plain, "assistant", `"So"`, "[user]Hi<end>[assistant]So"},
		"a blank at the end":       {plain, "assistant", `"So "`, "[user]Hi<end>[assistant]So "},
		"lines at both ends":       {plain, "assistant", `"\n So\n"`, "[user]Hi<end>[assistant]\n So\n"},
		"trimmed":                  {trims, "assistant", `"So"`, "[user]Hi<end>[assistant]So"},
		"trimmed at the end":       {trims, "assistant", `"So \n"`, "[user]Hi<end>[assistant]So"},
		"trimmed at both ends":     {trims, "assistant", `" So "`, "[user]Hi<end>[assistant]So"},
		"empty":                    {plain, "assistant", `""`, "[user]Hi<end>[assistant]"},
		"the content of the turns": {plain, "assistant", `"<end>"`, "[user]Hi<end>[assistant]<end>"},
		"the last place":           {twice, "assistant", `"So"`, "Hi|Hi<end>SoCONTINUE_FINAL_MESSAGE_TAG |So"},
		"a part":                   {ofParts, "assistant", `[{"type": "text", "text": "So "}]`, "[user]<end>[assistant]So "},
		"the last part with a text": {ofParts, "assistant", `[{"text": "A"}, {"text": "B"}, {"type": "image"}]`,
			"[user]<end>[assistant]AB"},
		"null":               {plain, "assistant", `null`, "error: no text"},
		"no text in parts":   {ofParts, "assistant", `[{"type": "image"}]`, "error: no text"},
		"a user":             {plain, "user", `"So"`, `error: has the role "user"`},
		"changed":            {upper, "assistant", `"So"`, "error: changes the final message"},
		"left out":           {drops, "assistant", `"So"`, "error: changes the final message"},
		"a template without": {ignores, "assistant", `"So"`, "error: reads no content"},
	} {
		t.Run(name, func(t *testing.T) {
			tmpl := parse(t, tc.template)
			check := func(r Rendered, err error) {
				t.Helper()
				if message, fails := strings.CutPrefix(tc.want, "error: "); fails {
					var input *InputError
					if !errors.As(err, &input) || !strings.Contains(err.Error(), message) {
						t.Errorf("got %q, %v, want the error %q", r.Text, err, message)
					}
				} else if err != nil || r.Text != tc.want {
					t.Errorf("got %q, %v, want %q", r.Text, err, tc.want)
				} else if n := len(r.Content); n > 0 && r.Content[n-1].End > len(r.Text) {
					t.Errorf("content ends at %d of %d", r.Content[n-1].End, len(r.Text))
				}
			}
			check(tmpl.RenderJSON(t.Context(), []byte(`{"messages": [{"role": "user", "content": "Hi"}, {"role": "`+
				tc.role+`", "content": `+tc.content+`}], "continue_final_message": true}`)))
			check(tmpl.Render(t.Context(), []Message{{Role: "user", Content: "Hi"},
				{Role: tc.role, ContentJSON: json.RawMessage(tc.content)}}, &Options{ContinueFinal: true}))
		})
	}
	tmpl := parse(t, plain)
	for _, conversation := range []string{
		`{"messages": [], "continue_final_message": true}`,
		`{"messages": [{"role": "assistant", "content": "a"}], "continue_final_message": true, "add_generation_prompt": true}`,
		`{"messages": [{"role": "assistant", "content": "a"}], "continue_final_message": 1}`,
	} {
		var input *InputError
		if r, err := tmpl.RenderJSON(t.Context(), []byte(conversation)); !errors.As(err, &input) {
			t.Errorf("%s: %q, %v", conversation, r.Text, err)
		}
	}
}

// The final message stays open, as in transformers 5.24.0.
func TestContinueFinalOfTemplates(t *testing.T) {
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
