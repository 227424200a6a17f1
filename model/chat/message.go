package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/npukit/npukit/model/chat/internal/jinja"
)

// Message is one turn. A template sees role and content always, and the other keys unless they are
// empty, so that 'tool_calls' in message means what it means in Python. In JSON it has the shape
// of the OpenAI API.
type Message struct {
	Role    string `json:"role"` // "system", "user", "assistant", "tool", or another of the template's
	Content string `json:"content"`
	// ContentJSON replaces Content if it is not empty: a list of parts, or null for a message
	// without content.
	ContentJSON json.RawMessage `json:"-"`
	// ReasoningContent is what the model thought before it answered.
	ReasoningContent string     `json:"reasoning_content,omitempty"`
	ToolCalls        []ToolCall `json:"tool_calls,omitempty"`   // what an assistant asks for
	ToolCallID       string     `json:"tool_call_id,omitempty"` // which call a tool's result answers
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
	// Arguments is JSON. A template sees it as it stands: an object as a dict in the order of its
	// keys, a string as a string. Most templates want an object. Empty means {}.
	//
	// The OpenAI API writes the object into a string. Unmarshalling takes it out of there, and
	// marshalling puts it back.
	Arguments json.RawMessage `json:"arguments"`
}

// Tool is the JSON schema of a function that the model may call: {"type": "function", "function":
// {...}}. The order of its keys is kept.
type Tool = json.RawMessage

// Variable is a further variable for a template.
type Variable struct {
	Name  string
	Value json.RawMessage
}

// Options control a rendering. Nil means none of them.
type Options struct {
	// Template names one of several templates. Empty chooses as transformers does: see
	// [ParseNamed].
	Template string
	Tools    []Tool // none: the template sees None
	// Documents are for templates of retrieval augmented generation: objects with title and text.
	Documents           []json.RawMessage
	AddGenerationPrompt bool // end with the words that begin an answer
	// ContinueFinal ends the text right after the content of the last message, which must be an
	// assistant's, so that the model continues it. It excludes AddGenerationPrompt.
	ContinueFinal bool
	// EnableThinking is defined in the template only if it is set.
	EnableThinking *bool
	BOS, EOS       string // bos_token and eos_token, defined unless empty
	// DateString fixes the date, both as the variable date_string and as what strftime_now
	// returns. Empty means the date of Now.
	DateString string
	Now        func() time.Time // nil means time.Now
	Extra      []Variable       // defined last, so they replace variables of the same name
	// AllowSpecial makes a model encode special tokens inside [Rendered].Content as such. Then
	// whoever writes a message can end it and begin another one, of any role. Rendering ignores
	// it.
	AllowSpecial bool
}

// value is the dict that a template sees.
func (m *Message) value() (*jinja.Dict, error) {
	d := jinja.NewDict()
	d.Set("role", role(m.Role))
	d.Set("content", jinja.Content(m.Content))
	if len(m.ContentJSON) > 0 {
		content, err := jinja.DecodeJSON(m.ContentJSON)
		if err != nil {
			return nil, fmt.Errorf("content: %w", err)
		}
		d.Set("content", content)
	}
	if m.ReasoningContent != "" {
		d.Set("reasoning_content", jinja.Content(m.ReasoningContent))
	}
	if len(m.ToolCalls) > 0 {
		calls := &jinja.List{}
		for i, c := range m.ToolCalls {
			v, err := c.value()
			if err != nil {
				return nil, fmt.Errorf("tool call %d: %w", i, err)
			}
			calls.Items = append(calls.Items, v)
		}
		d.Set("tool_calls", calls)
	}
	if m.ToolCallID != "" {
		d.Set("tool_call_id", jinja.Content(m.ToolCallID))
	}
	if m.Name != "" {
		d.Set("name", jinja.Content(m.Name))
	}
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
	f := jinja.NewDict()
	f.Set("name", jinja.Content(c.Function.Name))
	f.Set("arguments", arguments)
	d := jinja.NewDict()
	if c.ID != "" {
		d.Set("id", jinja.Content(c.ID))
	}
	d.Set("type", jinja.Content(c.typ()))
	d.Set("function", f)
	return d, nil
}

func (c *ToolCall) typ() string {
	if c.Type == "" {
		return "function"
	}
	return c.Type
}

// wireMessage is a Message in JSON.
type wireMessage struct {
	Role             string          `json:"role"`
	Content          json.RawMessage `json:"content"`
	ReasoningContent *string         `json:"reasoning_content,omitempty"`
	Thinking         *string         `json:"thinking,omitempty"`
	Reasoning        *string         `json:"reasoning,omitempty"`
	ToolCalls        []ToolCall      `json:"tool_calls,omitempty"`
	ToolCallID       string          `json:"tool_call_id,omitempty"`
	Name             string          `json:"name,omitempty"`
}

var null = json.RawMessage("null")

// MarshalJSON writes the message in the shape of the OpenAI API.
func (m Message) MarshalJSON() ([]byte, error) {
	w := wireMessage{
		Role: m.Role, Content: m.ContentJSON, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID,
		Name: m.Name,
	}
	if m.ReasoningContent != "" {
		w.ReasoningContent = &m.ReasoningContent
	}
	if len(w.Content) == 0 {
		content, err := json.Marshal(m.Content)
		if err != nil {
			return nil, err
		}
		w.Content = content
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads a message of the OpenAI API. Its content is a string, null or a list of
// parts. Reasoning may also be called thinking or reasoning. Other keys are ignored.
func (m *Message) UnmarshalJSON(data []byte) error {
	var w wireMessage
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*m = Message{Role: w.Role, ToolCalls: w.ToolCalls, ToolCallID: w.ToolCallID, Name: w.Name}
	for _, reasoning := range []*string{w.ReasoningContent, w.Thinking, w.Reasoning} {
		if reasoning != nil {
			m.ReasoningContent = *reasoning
			break
		}
	}
	switch {
	case len(w.Content) == 0:
		m.ContentJSON = null
	case w.Content[0] == '"':
		return json.Unmarshal(w.Content, &m.Content)
	case w.Content[0] == '[' || bytes.Equal(w.Content, null):
		m.ContentJSON = w.Content
	default:
		return errors.New("chat: a message's content must be a string, null or a list of parts")
	}
	return nil
}

// MarshalJSON writes the call in the shape of the OpenAI API.
func (c ToolCall) MarshalJSON() ([]byte, error) {
	type wire ToolCall
	c.Type = c.typ()
	return json.Marshal(wire(c))
}

// wireCall is a FunctionCall as it is in JSON.
type wireCall FunctionCall

// MarshalJSON writes the call in the shape of the OpenAI API, with its arguments in a string.
func (f FunctionCall) MarshalJSON() ([]byte, error) {
	arguments := f.Arguments
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	if arguments[0] != '"' {
		var err error
		if arguments, err = json.Marshal(string(arguments)); err != nil {
			return nil, err
		}
	}
	return json.Marshal(wireCall{f.Name, arguments})
}

// UnmarshalJSON reads a call of the OpenAI API. Arguments that are a string with a JSON object
// become that object.
func (f *FunctionCall) UnmarshalJSON(data []byte) error {
	var w wireCall
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	f.Name, f.Arguments = w.Name, w.Arguments
	var text string
	var object map[string]json.RawMessage
	if bytes.Equal(w.Arguments, null) {
		f.Arguments = nil
	} else if json.Unmarshal(w.Arguments, &text) == nil {
		if text == "" {
			f.Arguments = nil
		} else if json.Unmarshal([]byte(text), &object) == nil && object != nil {
			f.Arguments = json.RawMessage(text)
		}
	}
	return nil
}
