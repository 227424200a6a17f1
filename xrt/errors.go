package xrt

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// Errors that a program can handle, for use with errors.Is. Their text includes advice.
var (
	ErrUnavailable = errors.New("built without XRT: build on Linux with cgo, XRT's development " +
		"package and -tags xrt")
	ErrClosed   = errors.New("used after Close")
	ErrSpent    = errors.New("it failed and cannot be started again: create a new run")
	ErrBusy     = errors.New("still in progress: call Wait first")
	ErrNoDevice = errors.New("no NPU found: check that the amdxdna driver is loaded (lsmod) and " +
		"/dev/accel/accel0 exists")
	ErrPermission = errors.New("no permission for /dev/accel: add the user to the node's group " +
		"(often render) and log in again")
	ErrMemlock = errors.New("the limit of locked memory is too low (ulimit -l): set memlock to " +
		"unlimited in /etc/security/limits.conf, " +
		"and LimitMEMLOCK=infinity for services")
	ErrMemory = errors.New("out of memory: of the machine, or of the 64 MB device heap for instructions " +
		"and ELF runs: close buffers, runs or contexts")
	ErrDamaged   = errors.New("not a complete NPU program: copy or compile it again")
	ErrNoKernel  = errors.New("no such kernel in the binary: see Kernels for a list")
	ErrNoContext = errors.New("no hardware context available: close contexts (a device has 16 to " +
		"32 for all processes) or check dmesg")
	ErrTimeout = errors.New("the device made no progress and was reset: check the kernel's " +
		"instance name and that a run takes less than 2 s")
	ErrAborted    = errors.New("aborted because the context failed: open a new context and run again")
	ErrFailed     = errors.New("the device reported an error: see Device.LastError")
	ErrDeviceLost = errors.New("device lost, e.g. after a driver unload or suspend. Open it again")
)

// Error is a failed XRT call or device command. It wraps its cause, one of the Err values of this
// package, and the errno from XRT, if any.
type Error struct {
	Op    string // the operation and its object
	Text  string // XRT's message
	Errno syscall.Errno
	State State // of the failed command, else 0
	Run   int   // index of the failed run in its runlist, else -1
	Cause error // one of the Err values, or nil
}

// Error returns the operation, XRT's message and advice.
func (e *Error) Error() string {
	s := "xrt: " + e.Op + ": " + e.Text
	if e.Run >= 0 {
		s += fmt.Sprintf(", in run %d", e.Run)
	}
	if e.Cause != nil {
		s += " (" + e.Cause.Error() + ")"
	}
	return s
}

// Unwrap returns the cause and the errno.
func (e *Error) Unwrap() []error {
	var list []error
	if e.Cause != nil {
		list = append(list, e.Cause)
	}
	if e.Errno != 0 {
		list = append(list, e.Errno)
	}
	return list
}

// failure is an error reported by the shim.
type failure struct {
	code, state, run int
	text             string
	unavailable      bool // the program was built without XRT
}

// fail returns the error of an operation for a failure of the shim. It returns nil if f is nil.
func fail(f *failure, op string, args ...any) error {
	if f == nil {
		return nil
	}
	op = fmt.Sprintf(op, args...)
	if f.unavailable {
		return errorf("%s: %w", op, ErrUnavailable)
	}
	if f.code < 0 {
		f.code = -f.code
	}
	text := strings.Join(strings.FieldsFunc(f.text,
		func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	e := &Error{Op: op, Text: strings.TrimSpace(text), Errno: syscall.Errno(f.code),
		State: stateOf(f.state), Run: f.run}
	if f.state == 0 {
		e.Run = -1
	}
	e.Cause = cause(e)
	return e
}

// Linux errno values, which XRT uses on every system that this package is compiled for.
const (
	ePERM  = 1
	eNOENT = 2
	eAGAIN = 11
	eNOMEM = 12
	eACCES = 13
	eNODEV = 19
)

// cause returns the Err value for e, or nil if there is none. XRT has one exception type for most
// failures, so the cause is derived from errno and the messages of libxrt and the xdna library (XRT
// 2.25).
func cause(e *Error) error {
	has := func(s string) bool { return strings.Contains(e.Text, s) }
	switch {
	case e.State == stateTimedOut:
		return ErrTimeout
	case e.State == stateAborted:
		return ErrAborted
	case e.State != "":
		return ErrFailed
	case has("No such device with index"), has("No such device '"), e.Errno == eNOENT && has("/dev/accel"):
		return ErrNoDevice
	case e.Errno == eNODEV:
		return ErrDeviceLost
	case e.Errno == eACCES, e.Errno == ePERM:
		return ErrPermission
	case has("mmap(") && e.Errno == eAGAIN:
		return ErrMemlock
	case has("No such kernel"), has("Unable to find group idx for given kernel"):
		return ErrNoKernel
	case has("CREATE_HWCTX"):
		return ErrNoContext
	case e.Errno == eNOMEM:
		return ErrMemory
	}
	return nil
}

// errorf returns an error of this package.
func errorf(format string, args ...any) error { return fmt.Errorf("xrt: "+format, args...) }
