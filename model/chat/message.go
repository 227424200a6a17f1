package chat

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/npukit/npukit/model/chat/internal/jinja"
)

// Message is one turn. A template always sees role and content, and the other keys unless they are
// empty, so that a test such as 'tool_calls' in message works. The JSON form is that of the OpenAI
// API.
type Message struct {
	// Role is "system", "user", "assistant", "tool", or another role that the template supports.
	// Templates may build special tokens from the roles of published templates: see [Rendered].
	Role    string `json:"role"`
	Content string `json:"content"`
	// ContentJSON replaces Content if it is not empty. It is a list of parts, or null for a
	// message without content.
	ContentJSON json.RawMessage `json:"-"`
	// ReasoningContent is the model's reasoning before its answer.
	ReasoningContent string     `json:"reasoning_content,omitempty"`
	ToolCalls        []ToolCall `json:"tool_calls,omitempty"`   // the assistant's calls
	ToolCallID       string     `json:"tool_call_id,omitempty"` // the call that a tool's result is for
	Name             string     `json:"name,omitempty"`         // of the tool, or of the speaker
}

// ToolCall is an assistant's request to call a function.
type ToolCall struct {
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type"` // empty means "function"
	Function FunctionCall `json:"function"`
}

// FunctionCall names a function and its arguments.
type FunctionCall struct {
	Name string `json:"name"`
	// Arguments is JSON. A template sees an object as a dict in the order of its keys, and a
	// string as a string. Most templates need an object. Empty means {}.
	//
	// In the OpenAI API it is a string with the encoded object. Unmarshalling decodes the
	// string, and marshalling encodes it.
	Arguments json.RawMessage `json:"arguments"`
}

// Tool is the JSON schema of a function that the model may call: {"type": "function", "function":
// {...}}. The order of its keys is kept.
type Tool = json.RawMessage

// Variable is an additional variable for a template.
type Variable struct {
	Name  string
	Value json.RawMessage
}

// Options are the options of a rendering.
type Options struct {
	// Template is the name of a template. If it is empty, the choice is that of transformers: see
	// [ParseNamed].
	Template string
	Tools    []Tool // None in the template if empty
	// Documents are objects with title and text, for retrieval-augmented generation.
	Documents           []json.RawMessage
	AddGenerationPrompt bool // end with the header of an answer
	// ContinueFinal ends the text after the content of the last message, so that the model
	// continues it. The role must be assistant, and AddGenerationPrompt must not be set.
	ContinueFinal bool
	// EnableThinking is the variable enable_thinking. It is not defined if nil.
	EnableThinking *bool
	BOS, EOS       string // bos_token and eos_token; not defined if empty
	// DateString is the variable date_string and the result of strftime_now. If it is empty,
	// strftime_now uses Now.
	DateString string
	Now        func() time.Time // nil means time.Now
	Extra      []Variable       // set last; they replace variables of the same name
	// AllowSpecial makes a model encode special tokens inside [Rendered].Content as such. Then a
	// user can end a message and begin another one with any role. Rendering ignores it.
	AllowSpecial bool
}

// value returns the message as the dict that a template sees.
func (m *Message) value() (*jinja.Dict, error) {
	d := object("role", role(m.Role), "content", jinja.Content(m.Content))
	if len(m.ContentJSON) > 0 {
		content, err := jinja.DecodeJSON(m.ContentJSON)
		if err != nil {
			return nil, fmt.Errorf("content: %w", err)
		}
		d.Set("content", content)
	}
	optional := func(name, value string) {
		if value != "" {
			d.Set(name, jinja.Content(value))
		}
	}
	optional("reasoning_content", m.ReasoningContent)
	calls := &jinja.List{}
	for i, c := range m.ToolCalls {
		v, err := c.value()
		if err != nil {
			return nil, fmt.Errorf("tool call %d: %w", i, err)
		}
		calls.Items = append(calls.Items, v)
	}
	if len(calls.Items) > 0 {
		d.Set("tool_calls", calls)
	}
	optional("tool_call_id", m.ToolCallID)
	optional("name", m.Name)
	return d, nil
}

func (c *ToolCall) value() (*jinja.Dict, error) {
	arguments := any(jinja.NewDict())
	if len(c.Function.Arguments) > 0 {
		var err error
		if arguments, err = jinja.DecodeJSON(c.Function.Arguments); err != nil {
			return nil, fmt.Errorf("arguments of %q: %w", c.Function.Name, err)
		}
	}
	d := jinja.NewDict()
	if c.ID != "" {
		d.Set("id", jinja.Content(c.ID))
	}
	d.Set("type", jinja.Content(cmp.Or(c.Type, "function")))
	d.Set("function", object("name", jinja.Content(c.Function.Name), "arguments", arguments))
	return d, nil
}

// object returns a dict of alternating names and values.
func object(items ...any) *jinja.Dict {
	d := jinja.NewDict()
	for i := 0; i < len(items); i += 2 {
		d.Set(items[i].(string), items[i+1])
	}
	return d
}

// plainMessage is a Message without its methods, for encoding all fields except the content.
type plainMessage Message

// MarshalJSON encodes the message in the form of the OpenAI API.
func (m Message) MarshalJSON() ([]byte, error) {
	var content any = m.Content
	if len(m.ContentJSON) > 0 {
		content = m.ContentJSON
	}
	return json.Marshal(struct {
		plainMessage
		Content any `json:"content"`
	}{plainMessage(m), content})
}

// UnmarshalJSON decodes a message of the OpenAI API. The content is a string, null or a list of
// parts. The reasoning is reasoning_content, thinking or reasoning. Other keys are ignored.
func (m *Message) UnmarshalJSON(data []byte) error {
	var w struct {
		plainMessage
		Content          json.RawMessage `json:"content"`
		ReasoningContent *string         `json:"reasoning_content"`
		Thinking         *string         `json:"thinking"`
		Reasoning        *string         `json:"reasoning"`
	}
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*m = Message(w.plainMessage)
	if reasoning := cmp.Or(w.ReasoningContent, w.Thinking, w.Reasoning); reasoning != nil {
		m.ReasoningContent = *reasoning
	}
	switch {
	case len(w.Content) == 0:
		m.ContentJSON = json.RawMessage("null")
	case w.Content[0] == '"':
		return json.Unmarshal(w.Content, &m.Content)
	case w.Content[0] == '[' || string(w.Content) == "null":
		m.ContentJSON = w.Content
	default:
		return errors.New("chat: a message's content must be a string, null or a list of parts")
	}
	return nil
}

// MarshalJSON encodes the call in the form of the OpenAI API.
func (c ToolCall) MarshalJSON() ([]byte, error) {
	type plain ToolCall
	c.Type = cmp.Or(c.Type, "function")
	return json.Marshal(plain(c))
}

// plainCall is a FunctionCall without its methods.
type plainCall FunctionCall

// MarshalJSON encodes the call in the form of the OpenAI API, with the arguments in a string.
func (f FunctionCall) MarshalJSON() ([]byte, error) {
	if len(f.Arguments) == 0 {
		f.Arguments = json.RawMessage("{}")
	}
	if f.Arguments[0] != '"' {
		var err error
		if f.Arguments, err = json.Marshal(string(f.Arguments)); err != nil {
			return nil, err
		}
	}
	return json.Marshal(plainCall(f))
}

// UnmarshalJSON decodes a call of the OpenAI API. If the arguments are a string with a JSON object,
// they become that object.
func (f *FunctionCall) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, (*plainCall)(f)); err != nil {
		return err
	}
	var text string
	var fields map[string]json.RawMessage
	switch {
	case string(f.Arguments) == "null", string(f.Arguments) == `""`:
		f.Arguments = nil
	case json.Unmarshal(f.Arguments, &text) != nil: // it is not a string
	case json.Unmarshal([]byte(text), &fields) == nil && fields != nil:
		f.Arguments = json.RawMessage(text)
	}
	return nil
}
