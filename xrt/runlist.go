package xrt

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"unsafe"
)

// Runlist is a list of runs that the device works through in order with one submission (xrt::runlist). All runs are of one context. XRT
// sends them in pieces of 24.
type Runlist struct{ core *listCore }

type listCore struct {
	*object

	mu    sync.Mutex // taken before the runs'
	runs  []*runCore
	job   job
	freed bool
}

// NewRunlist makes an empty list.
func (c *HWContext) NewRunlist() (*Runlist, error) {
	core := &listCore{job: job{state: nativeRunlistState, result: nativeRunlistResult, what: "runlist"}}
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
			case r.core.list.Load() != nil:
				return errorf("add to runlist: the run is already in one")
			case r.core.job.busy(run):
				return errorf("add to runlist: the run: %w", ErrBusy)
			}
			if err := fail(nativeRunlistAdd(list, run), "add to runlist"); err != nil {
				return err
			}
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

// Execute hands all runs to the device, in order, and returns. A list may be executed again once it is done, also after a failure.
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
		for i, r := range c.runs {
			r.mu.Lock()
			err := r.ready()
			r.mu.Unlock()
			if err != nil {
				return fmt.Errorf("xrt: execute runlist: run %d: %w", i, err)
			}
		}
		if err := fail(nativeRunlistExecute(list), "execute runlist of %d runs", len(c.runs)); err != nil {
			return err
		}
		c.job.begin()
		return nil
	})
}

// State is where the list stands: Completed when all runs are, Failed or Aborted when one is not.
func (l *Runlist) State() (State, error) {
	var s State
	err := l.core.do(func(list unsafe.Pointer) error {
		n, f := nativeRunlistState(list)
		s = State(n)
		return fail(f, "state of runlist")
	})
	return s, err
}

// Wait waits until the device is done with all runs or one failed, or the context ends. A failure is an [*Error] whose Run is the place of
// the run that failed; the runs after it were not done. When the context ends first, the device goes on: Wait may be called again.
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
		r.list.Store(nil)
		r.mu.Unlock()
	}
	c.runs = nil
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
