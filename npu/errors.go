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
	// ErrNoContext says that the device has no hardware context left for another program: close a loaded one first.
	ErrNoContext = errors.New("npu: no hardware context is left: close a loaded program first")
	// ErrMemory says that the device could not give so much memory.
	ErrMemory = errors.New("npu: the device has not so much memory left")
)
