package gate

import (
	"errors"
	"fmt"
)

// ErrFailed is wrapped by the Err of every failed report.
var ErrFailed = errors.New("gate: failed")

// InputError reports an argument that a gate cannot work with: lengths that differ, a missing
// scorer, a reference that is NaN, bounds that would prove nothing. It is the caller's mistake. A
// device that fails returns its own error instead, and wrong numbers are reasons in a report.
type InputError struct {
	Field  string // the argument or field: "got", "device", "Rtol"
	Reason string // the problem and the expected value
}

func (e *InputError) Error() string { return "gate: " + e.Field + ": " + e.Reason }

func badInput(field, format string, args ...any) error {
	return &InputError{Field: field, Reason: fmt.Sprintf(format, args...)}
}
