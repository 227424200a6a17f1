package xrt

import (
	"context"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Run is one submission of a kernel with its arguments (xrt::run). It can be started repeatedly
// until it fails; then Start returns [ErrSpent], because the driver has overwritten its command.
// Arguments may be changed between starts. A run of an ELF has its own copy of the instructions in
// the device heap, which has room for a few hundred.
type Run struct{ core *runCore }

// runCore is the state of a run, separate from Run so that the cleanup and a runlist can hold it.
type runCore struct {
	*object
	kernel *Kernel

	list atomic.Pointer[listCore] // the list that the run is in, or nil; modified with both locks held

	mu sync.Mutex // acquired after the list's
	// by argument, nil if it is not a buffer; a *Buffer, so that its cleanup waits for the run
	args  []*Buffer
	set   []bool // arguments that have been set
	job   job
	spent bool // it was in a list that failed
}

// lock locks the run's list, if any, and then the run, because a run must not change while its list
// is in progress.
func (c *runCore) lock() (unlock func()) {
	for {
		l := c.list.Load()
		if l == nil {
			c.mu.Lock()
			unlock = c.mu.Unlock
		} else {
			l.mu.Lock()
			c.mu.Lock()
			unlock = func() { c.mu.Unlock(); l.mu.Unlock() }
		}
		if c.list.Load() == l {
			return unlock
		}
		unlock()
	}
}

// NewRun returns a run of the kernel with no arguments set.
func (k *Kernel) NewRun() (*Run, error) {
	core := &runCore{kernel: k}
	err := k.object.do(func(ptr unsafe.Pointer) error {
		r, f := nativeRunNew(ptr)
		if err := fail(f, "run of kernel %q", k.info.Name); err != nil {
			return err
		}
		core.object = newObject("run", r, core.release)
		return nil
	})
	if err != nil {
		return nil, err
	}
	core.job = job{state: nativeRunState, result: nativeRunResult,
		kind: "run of kernel \"" + k.info.Name + "\""}
	core.args, core.set = make([]*Buffer, k.info.NumArgs), make([]bool, k.info.NumArgs)
	r := &Run{core}
	runtime.AddCleanup(r, (*object).close, core.object)
	return r, nil
}

// SetBuffer sets argument arg to b. The run keeps b alive until the argument is set again or the
// run is closed. A run with a closed buffer cannot be started.
func (r *Run) SetBuffer(arg int, b *Buffer) error {
	return r.core.setArg(arg, b, func(run unsafe.Pointer) error {
		return b.object.do(func(buffer unsafe.Pointer) error {
			return fail(nativeRunSetBuffer(run, arg, buffer), "set argument %d", arg)
		})
	})
}

// SetScalar sets argument arg to v, in the size that the kernel declares for it.
func (r *Run) SetScalar(arg int, v uint64) error {
	size := 8
	if info := r.core.kernel.info; arg >= 0 && arg < len(info.args) {
		size = info.args[arg].size
	}
	if size < 1 || size > 8 || bits.Len64(v) > 8*size {
		return errorf("argument %d: %d does not fit into %d bytes", arg, v, size)
	}
	return r.core.setArg(arg, nil, func(run unsafe.Pointer) error {
		return fail(nativeRunSetScalar(run, arg, v, size), "set argument %d", arg)
	})
}

func (c *runCore) setArg(arg int, buffer *Buffer, set func(run unsafe.Pointer) error) error {
	if err := c.kernel.checkArg(arg); err != nil {
		return err
	}
	return c.do(func(run unsafe.Pointer) error {
		defer c.lock()()
		if err := c.idle(run); err != nil {
			return err
		}
		if err := set(run); err != nil {
			return err
		}
		c.args[arg] = buffer
		c.set[arg] = true
		return nil
	})
}

// idle returns ErrBusy if the device may still read the run. The caller must hold the locks.
func (c *runCore) idle(run unsafe.Pointer) error {
	if l := c.list.Load(); l != nil && l.busy() || c.job.busy(run) {
		return errorf("%s: %w", c.kind, ErrBusy)
	}
	return nil
}

// ready returns an error if the run cannot be started. XRT does not check this, and the device
// would read address 0 or an overwritten command. The caller must hold mu.
func (c *runCore) ready() error {
	if c.spent || c.job.failed() {
		return errorf("run of kernel %q: %w", c.kernel.info.Name, ErrSpent)
	}
	last := len(c.set) - 1
	for last >= 0 && !c.set[last] {
		last--
	}
	for i := range last {
		if !c.set[i] {
			return errorf("run of kernel %q: argument %d is not set, but argument %d is",
				c.kernel.info.Name, i, last)
		}
	}
	for i, b := range c.args {
		if b != nil && b.object.closed.Load() {
			return errorf("run of kernel %q: argument %d is a closed buffer: %w",
				c.kernel.info.Name, i, ErrClosed)
		}
	}
	return nil
}

// Start submits the run to the device and returns without waiting for it.
func (r *Run) Start() error {
	c := r.core
	return c.do(func(run unsafe.Pointer) error {
		defer c.lock()()
		if err := c.idle(run); err != nil {
			return err
		}
		if err := c.ready(); err != nil {
			return err
		}
		if err := fail(nativeRunStart(run), "start run of kernel %q", c.kernel.info.Name); err != nil {
			return err
		}
		c.job.begin()
		return nil
	})
}

// State returns the state of the run, from the command that the device updates. A run in a runlist
// has the state of the list's last execution; runs after a failed one are "aborted".
func (r *Run) State() (State, error) {
	c := r.core
	var s State
	err := c.do(func(run unsafe.Pointer) error {
		if l := c.list.Load(); l != nil {
			if state, known := l.stateOf(c); known {
				s = state
				return nil
			}
		}
		n, f := nativeRunState(run)
		s = stateOf(n)
		return fail(f, "state of run")
	})
	return s, err
}

// Wait waits until the run has ended or ctx is done. If the run failed, it returns an [*Error] that
// wraps [ErrTimeout], [ErrAborted] or [ErrFailed]. If ctx is done first, it returns ctx's error and
// the run continues; Wait may be called again.
func (r *Run) Wait(ctx context.Context) error {
	defer runtime.KeepAlive(r)
	c := r.core
	return await(ctx, c.object, func(run unsafe.Pointer) (bool, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.list.Load() != nil && !c.job.started {
			return false, errorf("wait for a run in a runlist: wait for the runlist")
		}
		return c.job.poll(run)
	})
}

// Close closes the run. It is freed when the device is done with it.
func (r *Run) Close() error {
	r.core.close()
	return nil
}

// release frees the run's handle when the device is done with it.
func (c *runCore) release(run unsafe.Pointer) {
	whenDone(&c.mu, &c.job, run, func() {
		nativeRunFree(run)
		if c.list.Load() == nil { // a list keeps using its runs
			clear(c.args)
		}
	})
}
