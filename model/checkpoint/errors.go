package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrUnsupported is what every error about a model that is well formed, but of a kind this package
// does not handle, wraps. The error itself is an [*UnsupportedError].
var ErrUnsupported = errors.New("not supported")

// ErrClosed is the error of a tensor asked for after Close.
var ErrClosed = errors.New("checkpoint: used after Close")

// An UnsupportedError names a property of a model that this package does not handle.
type UnsupportedError struct {
	File      string // path of the file that says so
	Feature   string // what is not supported, with the field and its value
	Supported string // what is, or what to do instead
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("checkpoint: %s: %s is not supported (%s)", filepath.Base(e.File), e.Feature, e.Supported)
}

// Unwrap makes errors.Is(err, ErrUnsupported) true.
func (e *UnsupportedError) Unwrap() error { return ErrUnsupported }

// A FileError is a file that cannot be what it should be: truncated, inconsistent, or not there.
type FileError struct {
	File    string // path
	Problem string
	Err     error // the cause, where there is one
}

func (e *FileError) Error() string {
	if e.Err != nil && e.Err != os.ErrNotExist { // a problem that says what is missing has said it all
		return fmt.Sprintf("checkpoint: %s: %s: %v", filepath.Base(e.File), e.Problem, e.Err)
	}
	return fmt.Sprintf("checkpoint: %s: %s", filepath.Base(e.File), e.Problem)
}

// Unwrap gives the cause.
func (e *FileError) Unwrap() error { return e.Err }

func fileErrorf(file, format string, args ...any) error {
	return &FileError{File: file, Problem: fmt.Sprintf(format, args...)}
}

// A TensorError is a tensor that is missing, of the wrong shape or type, unknown to the family, or
// out of its file's bounds.
type TensorError struct {
	File    string // path of the file that holds it, or should
	Tensor  string // the tensor's Hugging Face name, or its name in the file if it has none
	InFile  string // its name in the file where that is another (GGUF), else ""
	Problem string // reads on after the name: "is missing"
}

func (e *TensorError) Error() string {
	name := fmt.Sprintf("%q", e.Tensor)
	if e.InFile != "" && e.InFile != e.Tensor {
		name = fmt.Sprintf("%q (%s)", e.InFile, e.Tensor)
	}
	return fmt.Sprintf("checkpoint: %s: tensor %s %s", filepath.Base(e.File), name, e.Problem)
}
