package xrt

import (
	"context"
	"runtime"
	"sync"
	"time"
	"unsafe"
)

// job follows one submission, of a run or of a runlist. Its owner's lock protects it.
type job struct {
	what    string
	state   func(unsafe.Pointer) (int, *failure)
	result  func(unsafe.Pointer) *failure
	started bool
	done    bool
	err     error // of the submission, once done
}

func (j *job) begin() { j.started, j.done, j.err = true, false, nil }

// poll asks the device once.
func (j *job) poll(ptr unsafe.Pointer) (done bool, err error) {
	if !j.started {
		return false, errorf("wait for a %s that was not started", j.what)
	}
	if j.done {
		return true, j.err
	}
	n, f := j.state(ptr)
	if f != nil {
		return false, fail(f, "state of %s", j.what)
	}
	if s := State(n); s.Final() {
		// XRT's own wait, which returns at once now and does XRT's bookkeeping; its exception has the device's words.
		j.done, j.err = true, fail(j.result(ptr), "%s", j.what)
	}
	return j.done, j.err
}

// failed reports whether the device ended the last submission with an error, so that its command is no longer what it was.
func (j *job) failed() bool { return j.started && j.done && j.err != nil }

// busy reports whether the device may still work on it.
func (j *job) busy(ptr unsafe.Pointer) bool {
	if !j.started || j.done {
		return false
	}
	done, err := j.poll(ptr)
	return !done && err == nil
}

// whenDone calls free, now or when the device is done: XRT ends the process when a command that runs is destroyed. A handle whose state
// XRT cannot tell is kept, because a leak is better than that.
func whenDone(mu *sync.Mutex, j *job, ptr unsafe.Pointer, free func()) {
	try := func() (again bool) {
		mu.Lock()
		defer mu.Unlock()
		busy := j.busy(ptr)
		if !busy && (!j.started || j.done) {
			free()
		}
		return busy
	}
	if !try() {
		return
	}
	go func() {
		for try() {
			time.Sleep(time.Millisecond)
		}
	}()
}

// await polls until done. It begins without sleeping, because most dispatches take some 20 us, and then sleeps for a sixteenth of the time
// waited so far, at most 1 ms: a job is noticed 6 % late at worst, and a context within 1 ms.
func await(ctx context.Context, o *object, poll func(unsafe.Pointer) (bool, error)) error {
	const spin, longest = 50 * time.Microsecond, time.Millisecond
	began := time.Now()
	for {
		var done bool
		err := o.do(func(ptr unsafe.Pointer) (err error) {
			done, err = poll(ptr)
			return err
		})
		if done || err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return errorf("wait for %s: %w", o.what, err)
		}
		if waited := time.Since(began); waited < spin {
			runtime.Gosched()
		} else {
			nativeSleep(min(waited/16, longest))
		}
	}
}
