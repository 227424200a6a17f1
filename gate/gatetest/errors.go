package gatetest

import (
	"context"
	"fmt"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// badOption returns a [gate.InputError] about an argument or option. Nothing was run.
func badOption(field, format string, args ...any) error {
	return &gate.InputError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// needDevice refuses a missing device.
func needDevice(dev npu.Device) error {
	if dev == nil {
		return badOption("dev", "the device is nil")
	}
	return nil
}

// RefusedError reports that a device did not load a kernel. It may be right not to, and nothing was
// compared.
type RefusedError struct {
	Op  op.Op
	Err error // the device's
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("gatetest: the device refuses %s%+v: %v", e.Op.Kind(), e.Op, e.Err)
}

// Unwrap returns the device's error.
func (e *RefusedError) Unwrap() error { return e.Err }

// failing is a device of which every call fails.
type failing struct{ err error }

func (failing) Info() npu.Info { return npu.Info{Name: "no device"} }
func (d failing) Load(context.Context, *npu.Program) (npu.Executable, error) {
	return nil, d.err
}
func (d failing) Alloc(context.Context, int) (npu.Buffer, error)        { return nil, d.err }
func (d failing) Const(context.Context, npu.Source) (npu.Buffer, error) { return nil, d.err }
func (d failing) Submit(context.Context, []npu.Run) error               { return d.err }
func (failing) Close() error                                            { return nil }
