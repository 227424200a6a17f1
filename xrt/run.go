package xrt

import (
	"context"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Run is one submission of a kernel with its arguments (xrt::run). It is made once and started as often as one likes, until it fails: the
// driver writes over a command that failed, XRT does not write it again, and Start is [ErrSpent] from then on. Arguments may change
// between runs. A run of an ELF has its own copy of the instructions in the device's heap, which has room for some hundreds.
type Run struct{ core *runCore }

// runCore is what a run is without its owner: what the cleanup and a runlist hold.
type runCore struct {
	*object
	kernel *Kernel

	list atomic.Pointer[listCore] // that the run was added to, or nil; changed under both locks

	mu    sync.Mutex // taken after the list's
	args  []*Buffer  // by argument, nil where there is a scalar or nothing; a buffer itself, so that its cleanup waits for the run
	set   []bool     // the arguments that were set
	job   job
	spent bool // it was in a list that failed
}

// lock takes the run's lock, and its list's first: what a run may do depends on whether its list is on the device.
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

// NewRun makes a run of the kernel, with no arguments yet.
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
	core.job = job{state: nativeRunState, result: nativeRunResult, what: "run of kernel \"" + k.info.Name + "\""}
	core.args, core.set = make([]*Buffer, k.info.NumArgs), make([]bool, k.info.NumArgs)
	r := &Run{core}
	runtime.AddCleanup(r, (*object).close, core.object)
	return r, nil
}

// SetBuffer makes a buffer the argument at a place. The run keeps the buffer until the argument is set to another one or the run is closed;
// a run whose buffer was closed does not start.
func (r *Run) SetBuffer(arg int, b *Buffer) error {
	return r.core.setArg(arg, b, func(run unsafe.Pointer) error {
		return b.object.do(func(buffer unsafe.Pointer) error {
			return fail(nativeRunSetBuffer(run, arg, buffer), "set argument %d", arg)
		})
	})
}

// SetScalar sets an argument to a number, in as many bytes as the kernel declares for it.
func (r *Run) SetScalar(arg int, v uint64) error {
	size := 8
	if info := r.core.kernel.info; arg >= 0 && arg < len(info.Args) {
		size = info.Args[arg].Size
	}
	if size < 1 || size > 8 || bits.Len64(v) > 8*size {
		return errorf("argument %d: %d does not fit into its %d bytes", arg, v, size)
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

// idle is ErrBusy while the device may still read the run. The caller holds the locks.
func (c *runCore) idle(run unsafe.Pointer) error {
	if l := c.list.Load(); l != nil && l.busy() || c.job.busy(run) {
		return errorf("%s: %w", c.what, ErrBusy)
	}
	return nil
}

// ready reports what is missing for a start. XRT checks none of it, and the device would read address 0 or what is no command at all. The
// caller holds mu.
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
			return errorf("run of kernel %q: argument %d is not set, but argument %d is", c.kernel.info.Name, i, last)
		}
	}
	for i, b := range c.args {
		if b != nil && b.object.closed.Load() {
			return errorf("run of kernel %q: argument %d is a closed buffer: %w", c.kernel.info.Name, i, ErrClosed)
		}
	}
	return nil
}

// Start hands the run to the device and returns.
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

// State is where the run stands, from the command that the device writes. A run of a runlist stands where its list stands; runs after
// one that failed are Aborted.
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
		s = State(n)
		return fail(f, "state of run")
	})
	return s, err
}

// Wait waits until the device is done with the run, or the context ends. The run's own failures are an [*Error] ([ErrTimeout], [ErrAborted],
// [ErrFailed]). When the context ends first, the error is the context's and the device goes on: Wait may be called again.
func (r *Run) Wait(ctx context.Context) error {
	defer runtime.KeepAlive(r)
	c := r.core
	return await(ctx, c.object, func(run unsafe.Pointer) (bool, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.list.Load() != nil && !c.job.started {
			return false, errorf("wait for a run that belongs to a runlist: wait for the runlist")
		}
		return c.job.poll(run)
	})
}

// Close gives the run back, at once or when the device is done with it.
func (r *Run) Close() error {
	r.core.close()
	return nil
}

// release frees the run's handle when the device no longer works on it.
func (c *runCore) release(run unsafe.Pointer) {
	whenDone(&c.mu, &c.job, run, func() {
		nativeRunFree(run)
		if c.list.Load() == nil { // a list goes on with the runs that it has
			clear(c.args)
		}
	})
}
