package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Render and RenderJSON of the same conversation set the same variables.
func TestMessagesAreTheSameAsJSON(t *testing.T) {
	tmpl := parse(t, "{{ messages }}\n{{ tools }}{{ documents }}{{ add_generation_prompt }}"+
		"{{ enable_thinking }}{{ bos_token }}{{ eos_token }}{{ date_string }}{{ x }}")
	thinking := false
	r, err := tmpl.Render(t.Context(), []Message{
		{Role: "user", Content: "q"},
		{Role: "user", ContentJSON: json.RawMessage(`[{"type": "text", "text": "p"}]`)},
		{Role: "assistant", ContentJSON: json.RawMessage(`null`), ReasoningContent: "hm", ToolCalls: []ToolCall{
			{ID: "1", Function: FunctionCall{Name: "f", Arguments: json.RawMessage(`{"b": 1, "a": 1.0}`)}},
			{Function: FunctionCall{Name: "g"}},
		}},
		{Role: "tool", Content: "r", ToolCallID: "1", Name: "f"},
	}, &Options{
		Tools: []Tool{json.RawMessage(`{"z": 1, "a": {}}`)}, AddGenerationPrompt: true,
		EnableThinking: &thinking, BOS: "<s>", EOS: "</s>", DateString: "today",
		Extra:     []Variable{{"x", json.RawMessage(`{"k": [null]}`)}},
		Documents: []json.RawMessage{json.RawMessage(`{"title": "t"}`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := r.Text
	equal(t, tmpl, `{"messages": [
		{"role": "user", "content": "q"},
		{"role": "user", "content": [{"type": "text", "text": "p"}]},
		{"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [
			{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"b": 1, "a": 1.0}}},
			{"type": "function", "function": {"name": "g", "arguments": {}}}]},
		{"role": "tool", "content": "r", "tool_call_id": "1", "name": "f"}],
		"tools": [{"z": 1, "a": {}}], "documents": [{"title": "t"}], "add_generation_prompt": true,
		"enable_thinking": false, "bos_token": "<s>", "eos_token": "</s>",
		"date_string": "today", "x": {"k": [null]}}`, got)
	if !strings.Contains(got, "{'b': 1, 'a': 1.0}") {
		t.Errorf("the arguments changed: %s", got)
	}
}

func TestEmptyFieldsAreNotSet(t *testing.T) {
	tmpl := parse(t, "{% for m in messages %}{{ m.keys() | list }}{% endfor %}"+
		"{{ enable_thinking is defined }}{{ bos_token is defined }}"+
		"{{ date_string is defined }}{{ tools is none }}")
	want := "['role', 'content']FalseFalseFalseTrue"
	r, err := tmpl.Render(t.Context(), []Message{{Role: "user", Content: "x"}}, nil)
	if got := r.Text; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	equal(t, tmpl, `{"messages": [{"role": "user", "content": "x"}],
		"enable_thinking": null, "bos_token": null, "date_string": null}`, want)
	equal(t, tmpl, `{"messages": [{}]}`, "[]FalseFalseFalseTrue")
}

func TestDates(t *testing.T) {
	now := func() time.Time { return time.Date(2024, 7, 6, 15, 4, 5, 678_900_000, time.UTC) }
	tmpl := parse(t, `{{ strftime_now("%d %b %Y|%A %B %a|%H:%M:%S.%f|%I %p|%j %y %m|%-d %e|%F %T|%w %u|%%") }}`)
	r, err := tmpl.Render(t.Context(), nil, &Options{Now: now})
	want := "06 Jul 2024|Saturday July Sat|15:04:05.678900|03 PM|188 24 07|6  6|2024-07-06 15:04:05|6 6|%"
	if err != nil || r.Text != want {
		t.Errorf("got %q, %v, want %q", r.Text, err, want)
	}
	fixed := &Options{Now: now, DateString: "26 Jul 2024"}
	if r, err := tmpl.Render(t.Context(), nil, fixed); err != nil || r.Text != "26 Jul 2024" {
		t.Errorf("got %q, %v, want the fixed date", r.Text, err)
	}
}

func TestInvalidConversations(t *testing.T) {
	tmpl := parse(t, "{{ messages }}")
	for conversation, want := range map[string]string{
		``:                                 "JSON",
		`{"messages": [}`:                  "JSON at byte",
		`{"messages": []} x`:               "JSON at byte",
		`[]`:                               "expected an object",
		`{}`:                               `"messages" is missing`,
		`{"messages": {}}`:                 "array of objects",
		`{"messages": ["hi"]}`:             "message 0 is not an object",
		`{"messages": null}`:               "array of objects",
		`{"messages": [], "tools": {}}`:    "must be an array",
		`{"messages": [], "bos_token": 1}`: "must be a string",
		`{"messages": [], "add_generation_prompt": "yes"}`: "true or false",
		`{"messages": ` + strings.Repeat("[", 9999):        "deep",
	} {
		_, err := tmpl.RenderJSON(t.Context(), []byte(conversation))
		if err == nil || !strings.HasPrefix(err.Error(), "chat: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: got %v, want %q", conversation, err, want)
		}
	}
	call := ToolCall{Function: FunctionCall{Name: "f", Arguments: json.RawMessage("{")}}
	_, err := tmpl.Render(t.Context(), []Message{{Role: "a", ToolCalls: []ToolCall{call}}}, nil)
	if want := `message 0: tool call 0: arguments of "f"`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// Invalid UTF-8 in content is printed unchanged, and does not fail a template.
func TestInvalidUTF8(t *testing.T) {
	tmpl := parse(t, "{{ messages[0].content }}")
	r, err := tmpl.Render(t.Context(), []Message{{Role: "user", Content: "a\xffb"}}, nil)
	if want := "a\xffb"; err != nil || r.Text != want {
		t.Errorf("got %q, %v, want %q", r.Text, err, want)
	}
	tmpl = parse(t, "{% set c = messages[0].content %}{{ c | tojson(ensure_ascii=true) }}{{ c[::-1] }}{{ [c] }}")
	if _, err := tmpl.Render(t.Context(), []Message{{Role: "user", Content: "a\xff\n"}}, nil); err != nil {
		t.Error(err)
	}
}

func ExampleTemplate_Render() {
	t, err := Parse(`{% for m in messages %}
<|{{ m.role }}|>{{ m.content | trim }}
{% endfor %}
{% if add_generation_prompt %}<|assistant|>{% endif %}`)
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := t.Render(context.Background(), []Message{
		{Role: "system", Content: "Be brief."}, {Role: "user", Content: " Hello! "},
	}, &Options{AddGenerationPrompt: true})
	fmt.Println(r.Text, err)
	// Output:
	// <|system|>Be brief.
	// <|user|>Hello!
	// <|assistant|> <nil>
}

func ExampleError() {
	t, err := Parse(`{{ raise_exception("Roles must alternate") }}`)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = t.Render(context.Background(), nil, nil)
	var e *Error
	if errors.Is(err, ErrRefused) && errors.As(err, &e) {
		fmt.Println(e.Msg)
	}
	// Output: Roles must alternate
}

func TestNilArguments(t *testing.T) {
	var none *Template
	var ctx context.Context
	for name, render := range map[string]func() (Rendered, error){
		"template": func() (Rendered, error) { return none.Render(t.Context(), nil, nil) },
		"JSON":     func() (Rendered, error) { return none.RenderJSON(t.Context(), []byte(hello)) },
		"context":  func() (Rendered, error) { return parse(t, "x").Render(ctx, nil, nil) },
	} {
		if _, err := render(); !errors.Is(err, ErrInput) {
			t.Errorf("nil %s: got %v, want an ErrInput", name, err)
		}
	}
}

// An integer has at most 300 digits, so that two of them can be compared.
func TestDigitsOfIntegers(t *testing.T) {
	tmpl := parse(t, "{{ a }}|{{ a == b }}|{{ a < b }}|{{ a < 1e308 }}")
	nines := strings.Repeat("9", 299)
	equal(t, tmpl, `{"messages": [], "a": `+nines+`8, "b": `+nines+`9}`, nines+"8|False|True|True")
	_, err := tmpl.RenderJSON(t.Context(), []byte(`{"messages": [], "a": `+nines+`99, "b": 1}`))
	if !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "301 digits") {
		t.Errorf("got %v, want an ErrInput that counts 301 digits", err)
	}
}
