package xrt

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"unsafe"
)

// Runlist is a list of runs that the device works through in order, submitted together (xrt::runlist). All runs are of one context.
//
// The driver takes at most a few dozen runs at once, and so a long list goes to the device in chains, one right after the other. When a run
// fails, the rest of its chain is not done, and the chains after it are done all the same: what they computed is not to be used.
type Runlist struct{ core *listCore }

// A chain has at most 24 runs, XRT's own number, whose commands fit into the 4 KiB that the driver has for them: 52 bytes and the arguments
// for each (aie2_msg_priv.h). XRT does not look at the second limit, and a list of 24 runs with 13 buffers each would be aborted.
const (
	chainRuns  = 24
	chainBytes = 4096
	slotBytes  = 52
)

// RunsInChain is how many runs of the kernel go to the device as one chain, at least one. Of a [Runlist] with no more than that of each of
// its kernels, nothing is done after the run that failed.
func (k *Kernel) RunsInChain() int { return max(1, min(chainRuns, chainBytes/k.slot())) }

// slot is how many bytes a run of the kernel takes of a chain.
func (k *Kernel) slot() int { return slotBytes + k.commandBytes() }

type listCore struct {
	*object

	hw *object // the context's

	mu    sync.Mutex // taken before the runs'
	runs  []*runCore
	job   job
	freed bool

	lastRuns, lastBytes int // of the last chain
}

// NewRunlist makes an empty list.
func (c *HWContext) NewRunlist() (*Runlist, error) {
	core := &listCore{hw: c.object, job: job{state: nativeRunlistState, result: nativeRunlistResult, what: "runlist"}}
	err := c.object.do(func(ptr unsafe.Pointer) error {
		l, f := nativeRunlistNew(ptr)
		if err := fail(f, "runlist"); err != nil {
			return err
		}
		core.object = newObject("runlist", l, core.release)
		return nil
	})
	if err != nil {
		return nil, err
	}
	l := &Runlist{core}
	runtime.AddCleanup(l, (*object).close, core.object)
	return l, nil
}

// Add appends a run, which from then on is started by the list only. The list keeps the run and its buffers, also after the run's Close.
func (l *Runlist) Add(r *Run) error {
	c := l.core
	return c.do(func(list unsafe.Pointer) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.job.busy(list) {
			return errorf("add to runlist: %w", ErrBusy)
		}
		return r.core.do(func(run unsafe.Pointer) error {
			r.core.mu.Lock()
			defer r.core.mu.Unlock()
			switch {
			case r.core.kernel.hw != c.hw:
				return errorf("add to runlist: the run is of another hardware context")
			case r.core.list.Load() != nil:
				return errorf("add to runlist: the run is already in one")
			case r.core.job.busy(run):
				return errorf("add to runlist: the run: %w", ErrBusy)
			case r.core.spent || r.core.job.failed():
				return errorf("add to runlist: the run: %w", ErrSpent)
			}
			slot := r.core.kernel.slot()
			fresh := c.lastRuns == chainRuns || c.lastBytes+slot > chainBytes
			if err := fail(nativeRunlistAdd(list, run, fresh), "add to runlist"); err != nil {
				return err
			}
			if fresh {
				c.lastRuns, c.lastBytes = 0, 0
			}
			c.lastRuns, c.lastBytes = c.lastRuns+1, c.lastBytes+slot
			r.core.list.Store(c)
			c.runs = append(c.runs, r.core)
			return nil
		})
	})
}

// Len is the number of runs in the list.
func (l *Runlist) Len() int {
	l.core.mu.Lock()
	defer l.core.mu.Unlock()
	return len(l.core.runs)
}

// Execute hands all runs to the device, in order, and returns. A list may be executed again once it is done. After a failure it may not, nor
// may its runs be started ([ErrSpent]): Reset it and add new ones.
func (l *Runlist) Execute() error {
	c := l.core
	return c.do(func(list unsafe.Pointer) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.job.busy(list) {
			return errorf("execute runlist: %w", ErrBusy)
		}
		if len(c.runs) == 0 {
			return errorf("execute runlist: it has no runs")
		}
		if c.job.failed() {
			return errorf("execute runlist: %w", ErrSpent)
		}
		for i, r := range c.runs {
			r.mu.Lock()
			err := r.ready()
			r.mu.Unlock()
			if err != nil {
				return fmt.Errorf("xrt: execute runlist: run %d: %w", i, err)
			}
		}
		submitted, f := nativeRunlistExecute(list)
		if submitted > 0 {
			c.job.begin() // also when a later chain was refused: the device has the first ones
		}
		return fail(f, "execute runlist of %d runs", len(c.runs))
	})
}

// State is where the list stands: Running, Completed, or the state of the run that failed. Before the first Execute it is New.
func (l *Runlist) State() (State, error) {
	c := l.core
	s := New
	err := c.do(func(list unsafe.Pointer) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.job.started {
			return nil
		}
		done, err := c.job.poll(list)
		var e *Error
		switch {
		case !done:
			s = Running
			return err
		case errors.As(err, &e) && e.State != 0:
			s = e.State
		default:
			s = Completed
		}
		return nil
	})
	return s, err
}

// stateOf is the state of a run in the list's last execution. XRT and the driver leave the states of a list's runs as they were.
func (c *listCore) stateOf(r *runCore) (s State, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.job.started || c.freed {
		return 0, false
	}
	done, err := c.job.poll(c.ptr)
	if !done {
		return Running, true
	}
	var e *Error
	place := slices.Index(c.runs, r)
	switch failed := errors.As(err, &e) && e.State != 0; {
	case !failed || place < e.Run:
		return Completed, true
	case place == e.Run:
		return e.State, true
	}
	return Aborted, true
}

// Wait waits until the device is done with all runs or the context ends. A failure is an [*Error] whose Run is the place of
// the first run that failed. When the context ends first, the device goes on: Wait may be called again.
func (l *Runlist) Wait(ctx context.Context) error {
	defer runtime.KeepAlive(l)
	c := l.core
	return await(ctx, c.object, func(list unsafe.Pointer) (bool, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.job.poll(list)
	})
}

// Reset empties the list; its runs are free again.
func (l *Runlist) Reset() error {
	c := l.core
	return c.do(func(list unsafe.Pointer) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.job.busy(list) {
			return errorf("reset runlist: %w", ErrBusy)
		}
		if err := fail(nativeRunlistReset(list), "reset runlist"); err != nil {
			return err
		}
		c.letGo()
		c.job.started = false
		return nil
	})
}

// Close gives the list back, at once or when the device is done with it.
func (l *Runlist) Close() error {
	l.core.close()
	return nil
}

// busy reports whether the device may still work on the list, which may have been closed meanwhile. The caller holds mu.
func (c *listCore) busy() bool { return !c.freed && c.job.busy(c.ptr) }

// letGo makes the runs free for other lists. The caller holds mu.
func (c *listCore) letGo() {
	for _, r := range c.runs {
		r.mu.Lock()
		r.spent = r.spent || c.job.failed() // which of them the driver wrote over differs between its versions
		r.list.Store(nil)
		r.mu.Unlock()
	}
	c.runs, c.lastRuns, c.lastBytes = nil, 0, 0
}

// release frees the list's handle when the device no longer works on it.
func (c *listCore) release(list unsafe.Pointer) {
	whenDone(&c.mu, &c.job, list, func() {
		// Without a reset XRT would still take the runs for the list's. It cannot fail: the list is not running.
		nativeRunlistReset(list)
		nativeRunlistFree(list)
		c.letGo()
		c.freed = true
	})
}
