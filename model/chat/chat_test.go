package chat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/npukit/npukit/internal/testenv"
)

// Byte-equal with the official implementation on the published templates.
func TestPublishedTemplates(t *testing.T) {
	dir := testenv.Shared(t, "chat")
	data, err := os.ReadFile(filepath.Join(dir, "rendered_goldens.json"))
	if err != nil {
		t.Fatal(err)
	}
	var goldens []map[string]json.RawMessage
	if err := json.Unmarshal(data, &goldens); err != nil {
		t.Fatal(err)
	}
	if len(goldens) < 48 {
		t.Fatalf("%d renderings, expected 48", len(goldens))
	}
	for _, g := range goldens {
		var template, name, want string
		for key, to := range map[string]*string{"template": &template, "case": &name, "text": &want} {
			if err := json.Unmarshal(g[key], to); err != nil {
				t.Fatal(err)
			}
			delete(g, key)
		}
		t.Run(template+"/"+name, func(t *testing.T) {
			tokens := map[string]string{
				"llama-3.2-instruct": `{"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}`,
				"qwen2.5":            `{"eos_token": "<|im_end|>"}`,
				"qwen3":              `{"eos_token": "<|im_end|>"}`,
				"smollm2-instruct":   `{"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}`,
			}[template]
			if err := json.Unmarshal([]byte(tokens), &g); err != nil {
				t.Fatal(err)
			}
			conversation, err := json.Marshal(g)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, parse(t, publishedSource(t, template)), string(conversation), want)
		})
	}
}

func publishedSource(t *testing.T, name string) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(testenv.Shared(t, "chat"), name+".chat_template.jinja"))
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

func parse(t *testing.T, source string) *Template {
	t.Helper()
	tmpl, err := Parse(source)
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

func equal(t *testing.T, tmpl *Template, conversation, want string) {
	t.Helper()
	r, err := tmpl.RenderJSON(t.Context(), []byte(conversation))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Text; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
