package xdna

import (
	"context"

	"github.com/npukit/npukit/npu"
)

// driver is the part of XRT that the device uses. It is implemented over package xrt and by a fake
// for tests. Errors wrap those of package xrt.
type driver interface {
	name() string                    // of the NPU, for display
	alloc(bytes int) (memory, error) // zeroed
	// maps process memory, whole pages; not every kernel driver can
	wrap(mem []byte) (memory, error)
	load(path string, elf bool) (config, error) // reads a binary
	close() error
}

// memory is a buffer object or part of one. Parts must be closed before the whole.
type memory interface {
	bytes() []byte // the host's view
	sync(dir npu.Direction, offset, n int) error
	sub(offset, n int) (memory, error)
	close() error
}

// config is a binary for which contexts can be opened.
type config interface {
	// returns an error unless the binary has a's kernel with args arguments
	check(a *Artefact, args int) error
	open() (hwContext, error)
	close() error
}

// hwContext is a hardware context: a share of the array with one configuration.
type hwContext interface {
	kernel(a *Artefact) (kernel, error)
	list() (runlist, error)
	close() error
}

// kernel is a program in a context.
type kernel interface {
	run() (run, error)
	chain() int // maximum runs per chain of a list; the rest of a chain is skipped after a failure
	close() error
}

// run is a command that is created once and started many times. A run in a list is started by the
// list.
type run interface {
	set(arg int, m memory) error
	start() error
	wait(ctx context.Context) error // returns within milliseconds after ctx is done; may be called again
	close() error
}

// runlist is a list of runs of one context that are submitted together. An error names the failed
// run in [xrt.Error.Run]. The rest of its chain is skipped; later chains are executed.
type runlist interface {
	add(r run) error
	execute() error
	wait(ctx context.Context) error
	reset() error
	close() error
}
