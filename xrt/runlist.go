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

// Runlist is a list of runs of one context that are submitted together and executed in order
// (xrt::runlist).
//
// The driver takes a limited number of runs at a time, so a long list is submitted as several
// chains. If a run fails, the rest of its chain is skipped, but later chains are executed; their
// results must not be used.
type Runlist struct{ core *listCore }

// A chain has at most 24 runs, XRT's limit. Their commands must fit into the driver's 4 KiB buffer,
// at 52 bytes plus arguments each (aie2_msg_priv.h). XRT does not check the second limit: a list of
// 24 runs with 13 buffers each would be aborted.
const (
	chainRuns  = 24
	chainBytes = 4096
	slotBytes  = 52
)

// RunsInChain returns how many runs of the kernel fit in one chain, at least 1. In a [Runlist] of
// at most the minimum over its kernels, no run is executed after a failed one.
func (k *Kernel) RunsInChain() int { return max(1, min(chainRuns, chainBytes/k.slot())) }

// slot returns the number of bytes that a run of the kernel takes in a chain.
func (k *Kernel) slot() int { return slotBytes + k.commandBytes() }

type listCore struct {
	*object

	hw *object // of the context

	mu    sync.Mutex // acquired before the runs'
	runs  []*runCore
	job   job
	freed bool

	lastRuns, lastBytes int // of the last chain
}

// NewRunlist returns an empty list.
func (c *HWContext) NewRunlist() (*Runlist, error) {
	core := &listCore{hw: c.object, job: job{state: nativeRunlistState, result: nativeRunlistResult,
		kind: "runlist"}}
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

// Add appends a run, which then can only be started by the list. The list keeps the run and its
// buffers alive, even if the run is closed.
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
				return errorf("add to runlist: the run belongs to another hardware context")
			case r.core.list.Load() != nil:
				return errorf("add to runlist: the run is already in a runlist")
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

// Execute submits all runs in order and returns without waiting for them. The list may be executed
// again when it is done. After a failure neither the list nor its runs can be started ([ErrSpent]):
// call Reset and add new runs.
func (l *Runlist) Execute() error {
	c := l.core
	return c.do(func(list unsafe.Pointer) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.job.busy(list) {
			return errorf("execute runlist: %w", ErrBusy)
		}
		if len(c.runs) == 0 {
			return errorf("execute runlist: no runs")
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
			c.job.begin() // also if a later chain was rejected: the device has the first ones
		}
		return fail(f, "execute runlist of %d runs", len(c.runs))
	})
}

// State returns the state of the list: "new" before the first Execute, then "running", "completed", or
// the state of the run that failed.
func (l *Runlist) State() (State, error) {
	c := l.core
	s := stateNew
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
			s = stateRunning
			return err
		case errors.As(err, &e) && e.State != "":
			s = e.State
		default:
			s = stateCompleted
		}
		return nil
	})
	return s, err
}

// stateOf returns the state of a run in the list's last execution. XRT and the driver do not update
// the states of runs in a list.
func (c *listCore) stateOf(r *runCore) (s State, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.job.started || c.freed {
		return "", false
	}
	done, err := c.job.poll(c.ptr)
	if !done {
		return stateRunning, true
	}
	var e *Error
	index := slices.Index(c.runs, r)
	switch failed := errors.As(err, &e) && e.State != ""; {
	case !failed || index < e.Run:
		return stateCompleted, true
	case index == e.Run:
		return e.State, true
	}
	return stateAborted, true
}

// Wait waits until all runs have ended or ctx is done. If a run failed, it returns an [*Error]
// whose Run is the index of the first failed run. If ctx is done first, the runs continue; Wait may
// be called again.
func (l *Runlist) Wait(ctx context.Context) error {
	defer runtime.KeepAlive(l)
	c := l.core
	return await(ctx, c.object, func(list unsafe.Pointer) (bool, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.job.poll(list)
	})
}

// Reset removes all runs from the list.
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
		c.releaseRuns()
		c.job.started = false
		return nil
	})
}

// Close closes the list. It is freed when the device is done with it.
func (l *Runlist) Close() error {
	l.core.close()
	return nil
}

// busy reports whether the list, which may have been closed, may still be in progress. The caller
// must hold mu.
func (c *listCore) busy() bool { return !c.freed && c.job.busy(c.ptr) }

// releaseRuns removes the runs so that other lists can use them. The caller must hold mu.
func (c *listCore) releaseRuns() {
	for _, r := range c.runs {
		r.mu.Lock()
		r.spent = r.spent || c.job.failed() // which of them the driver overwrote depends on its version
		r.list.Store(nil)
		r.mu.Unlock()
	}
	c.runs, c.lastRuns, c.lastBytes = nil, 0, 0
}

// release frees the list's handle when the device is done with it.
func (c *listCore) release(list unsafe.Pointer) {
	whenDone(&c.mu, &c.job, list, func() {
		// Without Reset, XRT would still treat the runs as part of the list. It cannot fail,
		// because the list is not in progress.
		nativeRunlistReset(list)
		nativeRunlistFree(list)
		c.releaseRuns()
		c.freed = true
	})
}
