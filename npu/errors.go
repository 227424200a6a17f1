package npu

import (
	"errors"
	"fmt"
	"strings"
)

// Errors that every kind of device can return, for use with [errors.Is]. A device wraps them with
// the run, the program and the driver's own text.
var (
	// ErrClosed is returned by a device, an executable or a buffer that was used after Close.
	ErrClosed = errors.New("npu: used after Close")
	// ErrDeviceLost is returned if the device's context is gone and every loaded program with it:
	// load them again. Buffers keep their content from before the run that failed.
	ErrDeviceLost = errors.New("npu: device context lost: load the programs again")
	// ErrTimeout is returned if a run exceeds the driver's time limit. Its outputs are undefined;
	// the next run may succeed.
	ErrTimeout = errors.New("npu: run timed out")
	// ErrNoContext is returned if the device has no hardware context left for a program. Programs
	// take turns on the contexts that a device keeps open, so other processes hold the rest.
	ErrNoContext = errors.New("npu: no hardware context left: stop other processes that use the " +
		"device")
	// ErrMemory is returned if the device cannot allocate a buffer.
	ErrMemory = errors.New("npu: out of device memory")
)

// ProgramError describes an error in a program.
type ProgramError struct {
	Program string
	Launch  string // "" if the program or an argument itself is wrong
	Arg     string // "" if the program or a launch itself is wrong
	Reason  string
	Err     error // an op's own error; nil otherwise
}

func (e *ProgramError) Error() string {
	return place("program "+e.Program, e.Launch, e.Arg, e.Reason)
}

// Unwrap returns e.Err.
func (e *ProgramError) Unwrap() error { return e.Err }

// RunError reports a run that does not fit its program: buffers that are missing or too small,
// segments without state or beyond its capacity.
type RunError struct {
	Run     string
	Program string // "" for a run without an executable
	Arg     string // "" if no single argument is wrong
	Reason  string
}

func (e *RunError) Error() string {
	object := fmt.Sprintf("run %q", e.Run)
	if e.Program != "" {
		object += " of program " + e.Program
	}
	return place(object, "", e.Arg, e.Reason)
}

// LayoutError reports a layout that cannot be parsed or applied.
type LayoutError struct {
	Layout string
	Reason string
}

func (e *LayoutError) Error() string {
	return fmt.Sprintf("npu: layout %s: %s", e.Layout,
		e.Reason)
}

// place builds "npu: object, launch, argument: reason", leaving out what is empty.
func place(object, launch, arg, reason string) string {
	parts := []string{strings.TrimSpace(object)}
	if launch != "" {
		parts = append(parts, fmt.Sprintf("launch %q", launch))
	}
	if arg != "" {
		parts = append(parts, fmt.Sprintf("argument %q", arg))
	}
	return "npu: " + strings.Join(parts, ", ") + ": " + reason
}
