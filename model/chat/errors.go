package chat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/npukit/npukit/model/chat/internal/jinja"
)

// ErrLimit is wrapped by the error of a rendering that exceeds a limit on steps, CPU time, memory or
// depth. See [Template.Render].
var ErrLimit = jinja.ErrLimit

// ParseError is returned if a template is invalid or uses a construct that is not supported.
type ParseError struct {
	Template string // name; "default" if it has none
	Line     int    // from 1
	Msg      string
}

func (e *ParseError) Error() string { return place(e.Template, e.Line) + e.Msg }

// RenderError is returned if a template fails on a conversation.
type RenderError struct {
	Template string // name; "default" if it has none
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

// TemplateError is returned if a template calls raise_exception, for example because roles do not
// alternate.
type TemplateError struct {
	Line    int
	Message string // from the template; at most 300 bytes
}

func (e *TemplateError) Error() string {
	return fmt.Sprintf("chat: the template refuses this conversation: %s (line %d)", e.Message, e.Line)
}

// InputError is returned if a conversation or an option is invalid for every template.
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

// NameError is returned if no template has the name, or if there is no default.
type NameError struct {
	Name  string   // empty if the options name none and there is no default
	Names []string // existing templates
}

func (e *NameError) Error() string {
	names := strings.Join(e.Names, ", ")
	if e.Name == "" {
		return "chat: there is no default chat template: choose one of " + names
	}
	return fmt.Sprintf("chat: no chat template is named %q: choose one of %s", e.Name, names)
}

// wrap converts the engine's errors to the types of this package.
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
