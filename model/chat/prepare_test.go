package chat

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// Null keys are dropped and reasoning is set under both names, in the order of transformers.
func TestMessagesArePrepared(t *testing.T) {
	tmpl := parse(t, "{{ messages[0] | tojson }}")
	for _, tc := range []struct{ message, want string }{
		{`"role": "a", "content": null, "name": null`, `"role": "a"`},
		{`"role": "a", "content": ""`, `"role": "a", "content": ""`},
		{`"role": "a", "tool_calls": [{"id": null}]`, `"role": "a", "tool_calls": [{"id": null}]`},
		{`"role": "a", "reasoning_content": "r"`, `"thinking": "r", "role": "a", "reasoning_content": "r"`},
		{`"role": "a", "thinking": "t"`, `"thinking": "t", "role": "a", "reasoning_content": "t"`},
		{`"role": "a", "reasoning": "s", "content": "c"`,
			`"thinking": "s", "role": "a", "reasoning": "s", "content": "c", "reasoning_content": "s"`},
		{`"reasoning_content": "r", "thinking": "t", "reasoning": "s"`,
			`"thinking": "t", "reasoning_content": "r", "reasoning": "s"`},
		{`"reasoning_content": null, "thinking": null, "reasoning": "s"`,
			`"thinking": "s", "reasoning": "s", "reasoning_content": "s"`},
		{`"reasoning_content": "", "thinking": "t"`, `"thinking": "t", "reasoning_content": ""`},
	} {
		equal(t, tmpl, `{"messages": [{`+tc.message+`}]}`, "{"+tc.want+"}")
	}
	r, err := tmpl.Render(t.Context(), []Message{{
		Role: "assistant", ContentJSON: json.RawMessage("null"), ReasoningContent: "r",
	}}, nil)
	if want := `{"thinking": "r", "role": "assistant", "reasoning_content": "r"}`; err != nil || r.Text != want {
		t.Errorf("got %s, %v, want %s", r.Text, err, want)
	}
}

// A message of the OpenAI API is the same after decoding and encoding.
func TestMessageJSON(t *testing.T) {
	for data, want := range map[string]Message{
		`{"role":"user","content":"hi"}`: {Role: "user", Content: "hi"},
		`{"role":"user","content":[{"type":"text","text":"hi"}]}`: {
			Role: "user", ContentJSON: json.RawMessage(`[{"type":"text","text":"hi"}]`),
		},
		`{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function",` +
			`"function":{"name":"f","arguments":"{\"b\": 1, \"a\": 2}"}}]}`: {
			Role: "assistant", ContentJSON: json.RawMessage("null"), ToolCalls: []ToolCall{{
				ID: "1", Type: "function",
				Function: FunctionCall{Name: "f", Arguments: json.RawMessage(`{"b": 1, "a": 2}`)},
			}},
		},
		`{"role":"tool","content":"42","tool_call_id":"1","name":"f"}`: {
			Role: "tool", Content: "42", ToolCallID: "1", Name: "f",
		},
		`{"role":"assistant","content":"a","reasoning_content":"r"}`: {
			Role: "assistant", Content: "a", ReasoningContent: "r",
		},
	} {
		var m Message
		if err := json.Unmarshal([]byte(data), &m); err != nil || !reflect.DeepEqual(m, want) {
			t.Errorf("%s: got %+v, %v", data, m, err)
		}
		out, err := json.Marshal(m)
		var got, again any
		if err == nil {
			err = json.Unmarshal(out, &got)
		}
		if err != nil || json.Unmarshal([]byte(data), &again) != nil || !reflect.DeepEqual(got, again) {
			t.Errorf("got %s, %v, want %s", out, err, data)
		}
	}
	for data, want := range map[string]Message{
		`{"role":"assistant"}`: {Role: "assistant", ContentJSON: json.RawMessage("null")},
		`{"role":"assistant","content":"a","thinking":"t","reasoning":"r","refusal":null}`: {
			Role: "assistant", Content: "a", ReasoningContent: "t",
		},
		`{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":""}},` +
			`{"function":{"name":"g","arguments":{"a":1}}},{"function":{"name":"h","arguments":"no JSON"}},` +
			`{"function":{"name":"i","arguments":null}}]}`: {
			Role: "assistant", ToolCalls: []ToolCall{
				{Function: FunctionCall{Name: "f"}},
				{Function: FunctionCall{Name: "g", Arguments: json.RawMessage(`{"a":1}`)}},
				{Function: FunctionCall{Name: "h", Arguments: json.RawMessage(`"no JSON"`)}},
				{Function: FunctionCall{Name: "i"}},
			},
		},
	} {
		var m Message
		if err := json.Unmarshal([]byte(data), &m); err != nil || !reflect.DeepEqual(m, want) {
			t.Errorf("%s: got %+v, %v", data, m, err)
		}
	}
	for _, data := range []string{`{"content": 1}`, `{"content": {}}`, `{"role": 1}`, `[]`, `{"tool_calls": {}}`} {
		if err := json.Unmarshal([]byte(data), &Message{}); err == nil {
			t.Errorf("%s is a message", data)
		}
	}
	out, err := json.Marshal(ToolCall{Function: FunctionCall{Name: "f"}})
	if want := `{"type":"function","function":{"name":"f","arguments":"{}"}}`; err != nil || string(out) != want {
		t.Errorf("got %s, %v, want %s", out, err, want)
	}
}

// The roles of published templates, and the caller's tokens and date, are not content.
func TestContentOfOptions(t *testing.T) {
	tmpl := parse(t, "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"+
		"{{ date_string }}{{ image_token }}{{ effort }}{{ strftime_now('%Y') }}{{ documents[0].text }}")
	opts := &Options{
		BOS: "<s>", DateString: "today", Documents: []json.RawMessage{json.RawMessage(`{"text": "<doc>"}`)},
		Extra: []Variable{{"image_token", json.RawMessage(`"<image>"`)}, {"effort", json.RawMessage(`"<high>"`)}},
	}
	r, err := tmpl.Render(t.Context(), []Message{{Role: "user", Content: "<s>"}, {Role: "x|><s>", Content: "b"}}, opts)
	if err != nil {
		t.Fatal(err)
	}
	want := "<s><|user|>«<s>»<|«x|><s>»|>«b»today<image>«<high>»today«<doc>»"
	if got := marked(r); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// marked returns the rendered text with its content between « and ».
func marked(r Rendered) string {
	var b strings.Builder
	done := 0
	for _, s := range r.Content {
		b.WriteString(r.Text[done:s.Start] + "«" + r.Text[s.Start:s.End] + "»")
		done = s.End
	}
	return b.String() + r.Text[done:]
}
