package xrt

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// The causes that a program can do something about, for errors.Is. Their text is the advice.
var (
	ErrUnavailable = errors.New("this program was built without XRT: build it on Linux with cgo, XRT's development package and -tags xrt")
	ErrClosed      = errors.New("used after Close")
	ErrSpent       = errors.New("it failed, and the driver writes over a command that failed: make a new run")
	ErrBusy        = errors.New("the device still works on it: Wait first")
	ErrNoDevice    = errors.New("no NPU found: is the amdxdna driver loaded (lsmod) and /dev/accel/accel0 there?")
	ErrPermission  = errors.New("no permission for /dev/accel: add the user to the node's group (often render) and log in again")
	ErrMemlock     = errors.New("the limit of locked memory is too small (ulimit -l): set memlock to unlimited in /etc/security/limits.conf, " +
		"and LimitMEMLOCK=infinity for services")
	ErrMemory = errors.New("no memory is left, of the machine's or, for instructions and runs of an ELF, of the device's heap of 64 MB: " +
		"close buffers, runs or contexts")
	ErrDamaged    = errors.New("this is not a complete program for an NPU: copy or compile it again")
	ErrNoKernel   = errors.New("no such kernel in the binary: Kernels lists what it has")
	ErrNoContext  = errors.New("the driver gave no hardware context: close contexts (16 to 32 fit on a device, all processes together), or look at dmesg")
	ErrTimeout    = errors.New("the device made no progress and was reset: is the kernel's instance name right, and does one run take less than 2 s?")
	ErrAborted    = errors.New("ended because the context failed: open a new context and run again")
	ErrFailed     = errors.New("the device reported an error: Device.LastError may say which")
	ErrDeviceLost = errors.New("the device is gone: was the driver unloaded, or the machine asleep? Open it again")
)

// Error is a call that XRT refused or a command that failed on the device. errors.Is finds the cause, one of this package's Err values,
// and the errno that XRT gave, if any.
type Error struct {
	Op    string // what was tried, with its subject
	Text  string // XRT's own words
	Errno syscall.Errno
	State State // of the failed command, else 0
	Run   int   // place of the failed run in its runlist, else -1
	Cause error // one of the Err values, or nil
}

// Error is the operation, XRT's words and what to do.
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

// Unwrap gives errors.Is the cause and the errno.
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

// failure is an error as the shim reports it.
type failure struct {
	code, state, run int
	text             string
	unavailable      bool // there is no XRT in this program
}

// fail makes the error of an operation from the shim's report; nil stays nil.
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
	text := strings.Join(strings.FieldsFunc(f.text, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	e := &Error{Op: op, Text: strings.TrimSpace(text), Errno: syscall.Errno(f.code), State: State(f.state), Run: f.run}
	if f.state == 0 {
		e.Run = -1
	}
	e.Cause = cause(e)
	return e
}

// Errno values of Linux, which is where XRT's numbers come from whatever system this is compiled for.
const (
	ePERM  = 1
	eNOENT = 2
	eAGAIN = 11
	eNOMEM = 12
	eACCES = 13
	eNODEV = 19
)

// cause tells the kinds of failure apart. XRT has one exception type for most of them, so this goes by errno and by the words that
// libxrt and the xdna library use (XRT 2.25).
func cause(e *Error) error {
	says := func(s string) bool { return strings.Contains(e.Text, s) }
	switch {
	case e.State == TimedOut:
		return ErrTimeout
	case e.State == Aborted:
		return ErrAborted
	case e.State != 0:
		return ErrFailed
	case says("No such device with index"), says("No such device '"), e.Errno == eNOENT && says("/dev/accel"):
		return ErrNoDevice
	case e.Errno == eNODEV:
		return ErrDeviceLost
	case e.Errno == eACCES, e.Errno == ePERM:
		return ErrPermission
	case says("mmap(") && e.Errno == eAGAIN:
		return ErrMemlock
	case says("No such kernel"), says("Unable to find group idx for given kernel"):
		return ErrNoKernel
	case says("CREATE_HWCTX"):
		return ErrNoContext
	case e.Errno == eNOMEM:
		return ErrMemory
	}
	return nil
}

// errorf is an error of this package's own checks.
func errorf(format string, args ...any) error { return fmt.Errorf("xrt: "+format, args...) }
