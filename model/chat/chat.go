// Package chat turns a conversation into the text that a model was trained on, by the chat template that its checkpoint carries.
//
// A chat template is a program in Jinja2. [Parse] reads it once, [Template.Render] runs it over messages, and gives byte for byte what
// transformers' apply_chat_template gives: the same variables, the same whitespace rules, the same JSON. Nothing is guessed, because a prompt
// that is almost right makes answers that are almost right: what Jinja2 fails on fails here, what is not supported is an error that names
// the line, and so is a template that would not end or would fill the memory.
//
// Not supported: the tags block, extends, include, import, autoescape, do and trans; the filters for HTML, URLs and layout (escape, urlize,
// wordwrap, truncate, groupby, pprint and the like); unpacking arguments with *; joining what the filter safe gives; integer results beyond
// 64 bits; printing functions and generators.
//
//	t, err := chat.Parse(source) // tokenizer_config.json's chat_template, or GGUF's tokenizer.chat_template
//	text, err := t.Render([]chat.Message{{Role: "user", Content: "Hello"}}, &chat.Options{AddGenerationPrompt: true})
package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/npukit/npukit/model/chat/internal/jinja"
)

// Template is a parsed chat template. It is immutable and safe for concurrent use.
type Template struct{ t *jinja.Template }

// Parse reads a template. An error is a *ParseError, which names the line.
func Parse(source string) (*Template, error) {
	t, err := jinja.Parse(source)
	if err != nil {
		return nil, wrap(err)
	}
	return &Template{t}, nil
}

// Message is one turn. The template sees role and content always, and the other keys where they are not empty, so that
// 'tool_calls' in message tells what it tells in Python.
type Message struct {
	Role    string // "system", "user", "assistant", "tool", or what else the template knows
	Content string
	// ContentJSON is the content where it is not a string: null, or a list of parts. It takes the place of Content.
	ContentJSON      json.RawMessage
	ReasoningContent string     // what the model thought before it answered, for templates that show it
	ToolCalls        []ToolCall // what an assistant asks for
	ToolCallID       string     // which call a tool's result answers
	Name             string     // of the tool, or of the speaker
}

// ToolCall is an assistant's wish to have a function called.
type ToolCall struct {
	ID       string // left out when empty
	Type     string // "function" when empty
	Function FunctionCall
}

// FunctionCall names a function and its arguments.
type FunctionCall struct {
	Name string
	// Arguments is JSON and reaches the template as it is: an object as a dict in the order of its keys, a string as a string. Most templates
	// write it with tojson and want an object; the OpenAI API holds it as a string. Empty means {}.
	Arguments json.RawMessage
}

// Tool is the JSON schema of a function that the model may call: {"type": "function", "function": {...}}. The order of its keys is kept.
type Tool = json.RawMessage

// Variable is a further variable for a template.
type Variable struct {
	Name  string
	Value json.RawMessage
}

// Options say what else a template is told. Nil means none of it.
type Options struct {
	Tools               []Tool // none: the template sees None
	AddGenerationPrompt bool   // end with the words that begin an answer
	// EnableThinking is defined in the template only when it is set.
	EnableThinking *bool
	BOS, EOS       string // bos_token and eos_token, defined only when not empty
	// DateString fixes the date: as the variable date_string, and as what strftime_now gives. Empty: the date of Now.
	DateString string
	Now        func() time.Time // nil means time.Now
	Extra      []Variable       // defined last, so they replace what has the same name
}

// Render returns the text of a conversation. Errors are *TemplateError where the template itself refuses the conversation, and *RenderError
// where it fails.
func (t *Template) Render(messages []Message, opts *Options) (string, error) {
	if opts == nil {
		opts = &Options{}
	}
	vars, err := variables(messages, opts)
	if err != nil {
		return "", err
	}
	return t.render(vars, size(messages, opts), opts.DateString, opts.Now)
}

// size is about how many bytes go into a template.
func size(messages []Message, opts *Options) int {
	n := 0
	for _, m := range messages {
		n += len(m.Content) + len(m.ContentJSON) + len(m.ReasoningContent) + 200
		for _, c := range m.ToolCalls {
			n += len(c.Function.Arguments) + 200
		}
	}
	for _, tool := range opts.Tools {
		n += len(tool)
	}
	for _, x := range opts.Extra {
		n += len(x.Value)
	}
	return n
}

// render bounds the work by the size of what goes in, of which a template may well make many copies.
func (t *Template) render(vars *jinja.Dict, size int, date string, now func() time.Time) (string, error) {
	strftimeNow := func(format string) (string, error) {
		if date != "" {
			return date, nil
		}
		if now == nil {
			now = time.Now
		}
		return jinja.Strftime(now(), format)
	}
	text, err := t.t.Render(vars, strftimeNow, jinja.Limits{Steps: 5_000_000 + 8*size, Bytes: 64<<20 + 64*size})
	if err != nil {
		return "", wrap(err)
	}
	return text, nil
}

// ErrLimit is wrapped by the error of a template that would not end, or would fill the memory.
var ErrLimit = jinja.ErrLimit

// ParseError is a template that cannot be read.
type ParseError struct {
	Line int // 1 is the first
	Msg  string
}

func (e *ParseError) Error() string { return fmt.Sprintf("chat: template line %d: %s", e.Line, e.Msg) }

// RenderError is a template that failed on this conversation.
type RenderError struct {
	Line int
	Msg  string
	Err  error // ErrLimit, or nil
}

func (e *RenderError) Error() string { return fmt.Sprintf("chat: template line %d: %s", e.Line, e.Msg) }

// Unwrap gives ErrLimit where that is the cause.
func (e *RenderError) Unwrap() error { return e.Err }

// TemplateError is a template's own refusal, by raise_exception: roles that do not alternate, two tool calls at once.
type TemplateError struct {
	Line    int
	Message string // the template's words
}

func (e *TemplateError) Error() string {
	return fmt.Sprintf("chat: the template refuses this conversation: %s (line %d)", e.Message, e.Line)
}

// wrap gives the errors of the language this package's types.
func wrap(err error) error {
	var (
		parse  *jinja.ParseError
		render *jinja.RenderError
		raised *jinja.RaisedError
	)
	switch {
	case errors.As(err, &parse):
		return &ParseError{parse.Line, parse.Msg}
	case errors.As(err, &render):
		return &RenderError{render.Line, render.Msg, render.Err}
	case errors.As(err, &raised):
		return &TemplateError{raised.Line, raised.Message}
	}
	return fmt.Errorf("chat: %w", err)
}
