package npu

import "errors"

// Errors that every kind of device has, to be tested for with [errors.Is]. A device wraps them with what it knows: which run, which program, the
// driver's own text.
var (
	// ErrDeviceLost says that the device's context is gone, and with it every program loaded so far: load them again. Buffers keep what they held
	// before the run that failed.
	ErrDeviceLost = errors.New("npu: the device has lost its context: load the programs again")
	// ErrTimeout says that a run did not end in the time that the driver gives one. What it was to write is undefined; the next run may work.
	ErrTimeout = errors.New("npu: a run did not end in time")
	// ErrNoContext says that the device got no hardware context for a program. Programs take turns on those that a device keeps alive, so that
	// other processes have what there are.
	ErrNoContext = errors.New("npu: no hardware context is left: stop other processes that use the device")
	// ErrMemory says that the device could not give so much memory.
	ErrMemory = errors.New("npu: the device has not so much memory left")
)
