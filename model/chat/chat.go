// Package chat turns a conversation into the text that a model was trained on, by the chat template that its checkpoint carries.
//
// A chat template is a program in Jinja2. [Parse] reads it once, [Template.Render] runs it over messages, and gives byte for byte what
// transformers' apply_chat_template gives: the same variables, the same whitespace rules, the same JSON. What is not supported (see the end
// of testdata/expressions.txt) is an error that names the line, and so are templates that run away: nothing is guessed, because a prompt that
// is almost right makes answers that are almost right.
//
//	t, err := chat.Parse(source) // tokenizer_config.json's chat_template, or GGUF's tokenizer.chat_template
//	text, err := t.Render([]chat.Message{{Role: "user", Content: "Hello"}}, &chat.Options{AddGenerationPrompt: true})
//
// The engine is gonja. Where it differs from Jinja2 it is mended from outside, in three places: the text is normalised before gonja parses it
// (source.go, lex.go, expression.go), {% for %} and {% set %} are our own statements (statements.go), and the expressions of the parsed
// template become calls of functions with Python's meaning (tree.go, operations.go), which also count the work and so end what does not end.
package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// Template is a parsed chat template. It is immutable and safe for concurrent use.
type Template struct{ t *exec.Template }

// Parse reads a template. An error is a *ParseError, which names the line.
func Parse(source string) (t *Template, err error) {
	defer func() {
		if p := recover(); p != nil { // gonja's parser, on a text that it does not expect
			t, err = nil, &ParseError{1, clip(fmt.Sprintf("the template cannot be read: %v", p))}
		}
	}()
	compiled, err := compile(source)
	if err != nil {
		return nil, err
	}
	return &Template{compiled}, nil
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
//
// A template that runs away ends after some seconds at the latest, with an error that wraps [ErrLimit].
func (t *Template) Render(messages []Message, opts *Options) (string, error) {
	return t.RenderContext(context.Background(), messages, opts)
}

// RenderContext is Render, but ends soon after ctx with an error that wraps ctx.Err().
func (t *Template) RenderContext(ctx context.Context, messages []Message, opts *Options) (string, error) {
	if opts == nil {
		opts = &Options{}
	}
	vars, err := variables(messages, opts)
	if err != nil {
		return "", err
	}
	return t.render(ctx, vars, opts.DateString, opts.Now)
}

func (t *Template) render(ctx context.Context, vars dict, date string, now func() time.Time) (text string, err error) {
	state := &state{ctx: ctx, date: date, now: now, line: 1}
	out := &writer{state: state}
	defer func() {
		if p := recover(); p != nil {
			text, err = "", failure(p, state.line)
		}
	}()
	if err := t.t.Execute(out, state.context(vars)); err != nil {
		return "", failure(err, state.line)
	}
	return string(out.text), nil
}

// failure gives what ended a rendering this package's types.
func failure(p any, line int) error {
	err, ok := p.(error)
	if !ok {
		err = fmt.Errorf("%v", p)
	}
	var (
		render *RenderError
		raised *TemplateError
	)
	switch {
	case errors.As(err, &render):
		return render
	case errors.As(err, &raised):
		return raised
	}
	return &RenderError{Line: line, Msg: clip(err.Error())}
}

func clip(msg string) string {
	const most = 300
	if len(msg) > most {
		msg = msg[:most] + "..."
	}
	return msg
}

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
	Err  error // ErrLimit, a context's error, or nil
}

func (e *RenderError) Error() string { return fmt.Sprintf("chat: template line %d: %s", e.Line, e.Msg) }

// Unwrap gives ErrLimit or a context's error where that is the cause.
func (e *RenderError) Unwrap() error { return e.Err }

// TemplateError is a template's own refusal, by raise_exception: roles that do not alternate, two tool calls at once.
type TemplateError struct {
	Line    int
	Message string // the template's words
}

func (e *TemplateError) Error() string {
	return fmt.Sprintf("chat: the template refuses this conversation: %s (line %d)", e.Message, e.Line)
}
