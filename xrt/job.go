package xrt

import (
	"context"
	"runtime"
	"sync"
	"time"
	"unsafe"
)

// job tracks one submission of a run or a runlist. It is guarded by its owner's lock.
type job struct {
	kind    string
	state   func(unsafe.Pointer) (int, *failure)
	result  func(unsafe.Pointer) *failure
	started bool
	done    bool
	err     error // result of the submission, valid if done
}

func (j *job) begin() { j.started, j.done, j.err = true, false, nil }

// poll queries the state once.
func (j *job) poll(ptr unsafe.Pointer) (done bool, err error) {
	if !j.started {
		return false, errorf("wait for %s: not started", j.kind)
	}
	if j.done {
		return true, j.err
	}
	n, f := j.state(ptr)
	if f != nil {
		return false, fail(f, "state of %s", j.kind)
	}
	if isFinal(n) {
		// This calls XRT's own wait, which now returns at once and does XRT's bookkeeping. Its
		// exception has the device's error message.
		j.done, j.err = true, fail(j.result(ptr), "%s", j.kind)
	}
	return j.done, j.err
}

// failed reports whether the last submission failed, so that its command is overwritten.
func (j *job) failed() bool { return j.started && j.done && j.err != nil }

// busy reports whether the submission may still be in progress.
func (j *job) busy(ptr unsafe.Pointer) bool {
	if !j.started || j.done {
		return false
	}
	done, err := j.poll(ptr)
	return !done && err == nil
}

// whenDone calls free once the job is done, because XRT aborts the process if a command in progress
// is destroyed. If the state cannot be determined, the handle is leaked instead.
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

// await polls until done. It spins first, because most dispatches take about 20 us. Then it sleeps
// for a sixteenth of the time waited so far, at most 1 ms, so that completion is seen at most 6 %
// late and cancellation within 1 ms.
func await(ctx context.Context, o *object, poll func(unsafe.Pointer) (bool, error)) error {
	const spin, maxSleep = 50 * time.Microsecond, time.Millisecond
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
			return errorf("wait for %s: %w", o.kind, err)
		}
		if waited := time.Since(began); waited < spin {
			runtime.Gosched()
		} else {
			nativeSleep(min(waited/16, maxSleep))
		}
	}
}
