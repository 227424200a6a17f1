package chat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/npukit/npukit/model/chat/internal/jinja"
)

// Causes of an [Error], for errors.Is.
var (
	// ErrTemplate means that a template is invalid or uses a construct that is not supported.
	ErrTemplate = errors.New("invalid template")
	// ErrRefused means that the template called raise_exception, for example because roles do not
	// alternate. [Error].Msg is its message.
	ErrRefused = errors.New("refused by the template")
	// ErrInput means that the conversation or an option is invalid for every template, or that no
	// template has the requested name.
	ErrInput = errors.New("invalid input")
	// ErrLimit means that a rendering exceeds a limit on steps, CPU time, memory or depth. See
	// [Template.Render].
	ErrLimit = jinja.ErrLimit
)

// Error is returned if a template cannot be parsed, or if a rendering fails.
type Error struct {
	Template string // name; "default" if it has none; empty for ErrInput
	Line     int    // of the template, from 1; 0 for ErrInput
	Msg      string // at most 300 bytes if it comes from the template
	Err      error  // cause: one of this package's, a context's error, or nil if the template failed
}

func (e *Error) Error() string {
	switch {
	case e.Err == ErrRefused:
		return fmt.Sprintf("chat: the template refuses this conversation: %s (line %d)", e.Msg, e.Line)
	case e.Line == 0:
		return "chat: " + e.Msg
	case e.Template == defaultName:
		return fmt.Sprintf("chat: template line %d: %s", e.Line, e.Msg)
	}
	return fmt.Sprintf("chat: template %q line %d: %s", e.Template, e.Line, e.Msg)
}

// Unwrap returns the cause, or nil.
func (e *Error) Unwrap() error { return e.Err }

func inputf(format string, args ...any) error {
	return &Error{Msg: fmt.Sprintf(format, args...), Err: ErrInput}
}

// unknownName returns the error of a name that no template has, or of a missing default if name is
// empty.
func unknownName(name string, names []string) error {
	list := strings.Join(names, ", ")
	if name == "" {
		return inputf("there is no default chat template: choose one of %s", list)
	}
	return inputf("no chat template is named %q: choose one of %s", name, list)
}

// wrap converts an error of the engine.
func wrap(err error, name string) error {
	var e *jinja.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("chat: template %q: %w", name, err)
	}
	cause := e.Err
	switch e.Kind {
	case jinja.ParseError:
		cause = ErrTemplate
	case jinja.RaisedError:
		cause = ErrRefused
	}
	return &Error{name, e.Line, e.Msg, cause}
}
