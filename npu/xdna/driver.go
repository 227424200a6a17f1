package xdna

import (
	"context"

	"github.com/npukit/npukit/npu"
)

// driver is what the device needs of XRT. Package xrt is behind it on a machine with an NPU and on the emulated one; the tests of the
// device's own logic play it. Causes of errors are those of package xrt.
type driver interface {
	name() string                               // of the NPU, for people
	alloc(bytes int) (memory, error)            // zeroed
	wrap(mem []byte) (memory, error)            // memory of the process, whole pages; not every kernel driver can
	load(path string, elf bool) (config, error) // reads a binary
	close() error
}

// memory is a buffer object, or a part of one. Parts are closed before the whole.
type memory interface {
	bytes() []byte // the host's view
	sync(dir npu.Direction, offset, n int) error
	sub(offset, n int) (memory, error)
	close() error
}

// config is a binary that contexts are made of.
type config interface {
	check(a *Artefact, args int) error // that the binary has the artefact's kernel, with so many arguments
	open() (hwContext, error)
	close() error
}

// hwContext is a share of the array with one configuration.
type hwContext interface {
	kernel(a *Artefact) (kernel, error)
	list() (runlist, error)
	close() error
}

// kernel is a program in a context.
type kernel interface {
	run() (run, error)
	chain() int // how many of its runs are one chain of a list, in which nothing is done after a failure
	close() error
}

// run is one submission, made once and started many times. A run that is in a list is started by the list.
type run interface {
	set(arg int, m memory) error
	start() error
	wait(ctx context.Context) error // returns within milliseconds of the end of ctx, and may be called again
	close() error
}

// runlist is runs of one context that go down together. A failure names the run that failed in [xrt.Error.Run]; the rest of its chain is not
// done, and chains behind it are.
type runlist interface {
	add(r run) error
	execute() error
	wait(ctx context.Context) error
	reset() error
	close() error
}
