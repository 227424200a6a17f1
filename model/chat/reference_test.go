package chat

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// reference is the result of Jinja2 for a template: see testdata/make_references.py.
type reference struct {
	Text    string `json:"text"`
	Fails   string `json:"fails"` // "parse", "render", "raised", or empty
	Line    int    `json:"line"`
	Message string `json:"message"`
}

type references struct {
	Ours        map[string]map[string]reference `json:"ours"`        // template, conversation
	Expressions map[string]reference            `json:"expressions"` // template
	Published   map[string]map[string]reference `json:"published"`
	Prepared    map[string]string               `json:"prepared"` // "template/request": SHA-256, or "raises"
}

func load(t *testing.T) (r references, conversations map[string]json.RawMessage) {
	t.Helper()
	for name, to := range map[string]any{"references.json": &r, "conversations.json": &conversations} {
		if err := json.Unmarshal(read(t, name), to); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return r, conversations
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// render parses and renders a conversation.
func render(t *testing.T, source, conversation string) (string, error) {
	t.Helper()
	tmpl, err := Parse(source)
	if err != nil {
		return "", err
	}
	r, err := tmpl.RenderJSON(t.Context(), []byte(conversation))
	return r.Text, err
}

// matches compares a rendering with the reference. If Jinja2 fails, any text is wrong.
func matches(t *testing.T, source, conversation string, want reference) {
	t.Helper()
	got, err := render(t, source, conversation)
	var e *Error
	errors.As(err, &e)
	switch {
	case want.Fails == "" && err != nil:
		t.Errorf("error %v\nwant %q", err, want.Text)
	case want.Fails == "":
		if got != want.Text {
			t.Errorf("got  %q\nwant %q", got, want.Text)
		}
	case err == nil:
		t.Errorf("got %q, Jinja2 fails (%s)", got, want.Fails)
	case want.Fails == "raised":
		if !errors.Is(err, ErrRefused) || e.Msg != want.Message {
			t.Errorf("got %v, want the refusal %q", err, want.Message)
		}
	case want.Fails == "parse":
		if !errors.Is(err, ErrTemplate) || e.Line < 1 {
			t.Errorf("got %v, want an ErrTemplate", err)
		}
	case !failed(err):
		t.Errorf("got %v, want an error of the rendering", err)
	}
}

func TestExpressionsAsJinja2(t *testing.T) {
	refs, _ := load(t)
	variables := string(read(t, "variables.json"))
	n, refused := 0, false
	for _, line := range strings.Split(string(read(t, "expressions.txt")), "\n") {
		if line == "" || strings.HasPrefix(line, "##") {
			refused = refused || strings.HasPrefix(line, "## Refused")
			continue
		}
		n++
		want, ok := refs.Expressions[line]
		if !ok {
			t.Errorf("%q has no reference: run make_references.py", line)
			continue
		}
		source := strings.ReplaceAll(line, "⏎", "\n")
		t.Run(line, func(t *testing.T) {
			if refused {
				refuses(t, source, variables)
			} else {
				matches(t, source, variables, want)
			}
		})
	}
	if n < 250 {
		t.Errorf("only %d templates", n)
	}
}

// refuses checks that a template that only Jinja2 supports returns an error with the line.
func refuses(t *testing.T, source, conversation string) {
	t.Helper()
	text, err := render(t, source, conversation)
	if err == nil {
		t.Fatalf("rendered %q: move it out of the refused ones if that is right", text)
	}
	msg := err.Error()
	if !strings.HasPrefix(msg, "chat: template line 1: ") || !strings.Contains(msg, "not supported") {
		t.Errorf("%v does not name the unsupported construct", err)
	}
}

func TestOwnTemplatesAsJinja2(t *testing.T) {
	refs, conversations := load(t)
	for name, wants := range refs.Ours {
		source := string(read(t, filepath.Join("templates", name+".jinja")))
		for c, want := range wants {
			t.Run(name+"/"+c, func(t *testing.T) { matches(t, source, string(conversations[c]), want) })
		}
	}
}

// Published templates with tools, tool calls and their results, reasoning, and parts.
func TestPublishedTemplatesWithTools(t *testing.T) {
	refs, conversations := load(t)
	tokens := map[string]string{
		"llama-3.2-instruct": `"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", `,
		"qwen2.5":            `"eos_token": "<|im_end|>", `,
		"qwen3":              `"eos_token": "<|im_end|>", `,
		"smollm2-instruct":   `"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", `,
	}
	for name, wants := range refs.Published {
		t.Run(name, func(t *testing.T) {
			source := publishedSource(t, name)
			for c, want := range wants {
				t.Run(c, func(t *testing.T) {
					matches(t, source, "{"+tokens[name]+strings.TrimPrefix(string(conversations[c]), "{"), want)
				})
			}
		})
	}
}
