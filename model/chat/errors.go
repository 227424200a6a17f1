package chat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/npukit/npukit/model/chat/internal/jinja"
)

// ErrLimit is wrapped by the error of a template that exceeds a limit on steps, time, memory or
// depth.
var ErrLimit = jinja.ErrLimit

// ParseError is a template that is not valid or uses something that is not supported.
type ParseError struct {
	Template string // its name; "default" if it has none
	Line     int    // the first is 1
	Msg      string
}

func (e *ParseError) Error() string { return place(e.Template, e.Line) + e.Msg }

// RenderError is a template that failed on this conversation.
type RenderError struct {
	Template string // its name; "default" if it has none
	Line     int
	Msg      string
	Err      error // ErrLimit, a context's error, or nil
}

func (e *RenderError) Error() string { return place(e.Template, e.Line) + e.Msg }

// Unwrap returns ErrLimit or a context's error if that is the cause.
func (e *RenderError) Unwrap() error { return e.Err }

func place(template string, line int) string {
	if template == defaultName {
		return fmt.Sprintf("chat: template line %d: ", line)
	}
	return fmt.Sprintf("chat: template %q line %d: ", template, line)
}

// TemplateError is a template's own refusal, by raise_exception: roles that do not alternate, two
// tool calls at once.
type TemplateError struct {
	Line    int
	Message string // the template's words
}

func (e *TemplateError) Error() string {
	return fmt.Sprintf("chat: the template refuses this conversation: %s (line %d)", e.Message, e.Line)
}

// InputError is a conversation or an option that is not valid, whatever the template.
type InputError struct {
	Msg string
	Err error // the cause, or nil
}

func (e *InputError) Error() string {
	if e.Err != nil {
		return "chat: " + e.Msg + ": " + e.Err.Error()
	}
	return "chat: " + e.Msg
}

// Unwrap returns the cause, or nil.
func (e *InputError) Unwrap() error { return e.Err }

func inputf(format string, args ...any) error {
	return &InputError{Msg: fmt.Sprintf(format, args...)}
}

// NameError is a choice of a template that does not exist.
type NameError struct {
	Name  string   // empty if none was chosen and there is no default
	Names []string // of the templates that exist
}

func (e *NameError) Error() string {
	names := strings.Join(e.Names, ", ")
	if e.Name == "" {
		return "chat: there is no default chat template: choose one of " + names
	}
	return fmt.Sprintf("chat: no chat template is named %q: choose one of %s", e.Name, names)
}

// wrap gives the engine's errors this package's types.
func wrap(err error, name string) error {
	var e *jinja.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("chat: template %q: %w", name, err)
	}
	switch e.Kind {
	case jinja.ParseError:
		return &ParseError{name, e.Line, e.Msg}
	case jinja.RaisedError:
		return &TemplateError{e.Line, e.Msg}
	}
	return &RenderError{name, e.Line, e.Msg, e.Err}
}
