package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrUnsupported is wrapped by the error of a model that is valid but uses a feature that this
// package does not support.
var ErrUnsupported = errors.New("not supported")

// ErrClosed is returned if a checkpoint is used after Close.
var ErrClosed = errors.New("checkpoint: used after Close")

// Error describes a file, or a tensor in a file, that is missing, damaged, inconsistent or not
// supported.
type Error struct {
	File    string // path
	Tensor  string // Hugging Face name; empty if the error concerns the whole file
	InFile  string // the tensor's name in the file, if it differs (GGUF)
	Problem string // continues the sentence after the file or tensor: "is missing"
	Err     error  // cause or nil, for example ErrUnsupported or os.ErrNotExist
}

func (e *Error) Error() string {
	s := fmt.Sprintf("checkpoint: %s: ", filepath.Base(e.File))
	switch {
	case e.InFile != "" && e.InFile != e.Tensor:
		s += fmt.Sprintf("tensor %q (%s) ", e.InFile, e.Tensor)
	case e.Tensor != "":
		s += fmt.Sprintf("tensor %q ", e.Tensor)
	}
	s += e.Problem
	if e.Err != nil && e.Err != os.ErrNotExist && e.Err != ErrUnsupported { // Problem already states these
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause, or nil.
func (e *Error) Unwrap() error { return e.Err }

func fileErrorf(file, format string, args ...any) error {
	return &Error{File: file, Problem: fmt.Sprintf(format, args...)}
}

// unsupported returns an error that wraps ErrUnsupported. The hint names the supported
// alternatives.
func unsupported(file, feature, hint string) error {
	return &Error{File: file, Problem: fmt.Sprintf("%s is not supported (%s)", feature, hint), Err: ErrUnsupported}
}
