package chat

import (
	"errors"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// The documented limits of a template. CPU time is that of the whole process, so it gets a factor
// for the garbage collector's threads and for the race detector; memory gets a quarter for garbage
// that has not been collected yet.
const (
	maxCPU    = 2 * time.Second
	cpuFactor = 2
	maxMemory = 64 << 20
	perByte   = 8 // bytes of memory for each byte of the conversation
)

// within runs f and fails the test if it exceeds the limit on CPU time.
func within(t *testing.T, f func()) {
	t.Helper()
	before, measured := cpuTime()
	f()
	after, _ := cpuTime()
	if !measured {
		t.Log("CPU time is not measured on this system")
	}
	if d := after - before; d > cpuFactor*maxCPU {
		t.Errorf("it took %v of CPU time", d)
	}
}

// inMemory runs f and fails the test if it needs more than limit bytes of heap at once. It does
// nothing under the race detector, which would double the time of slow tests.
func inMemory(t *testing.T, limit int, f func()) {
	t.Helper()
	if raced {
		t.Log("memory is not measured under the race detector")
		return
	}
	if n := peak(f); n > limit {
		t.Errorf("it needs %d MiB at once, want at most %d", n>>20, limit>>20)
	}
}

// peak returns the number of heap bytes that f needs at once.
func peak(f func()) int {
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	heap := func() int {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(sample)
		return int(sample[0].Value.Uint64())
	}
	runtime.GC()
	before, most := heap(), 0
	stop, done := make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		for {
			most = max(most, heap())
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	f()
	close(stop)
	<-done
	return max(0, most-before)
}

// failed reports whether err is that of a rendering that failed, as opposed to an invalid template,
// a refusal or invalid input.
func failed(err error) bool {
	return errors.As(err, new(*Error)) && !errors.Is(err, ErrTemplate) && !errors.Is(err, ErrRefused) &&
		!errors.Is(err, ErrInput)
}

// endsInTime parses and renders a template, each within the limits on CPU time and memory, and
// returns the error. It fails the test if the error is not typed.
func endsInTime(t *testing.T, source string) (err error) {
	t.Helper()
	var tmpl *Template
	parse := func() { tmpl, err = Parse(source) }
	within(t, parse)
	inMemory(t, maxMemory+maxMemory/4, parse)
	if err != nil {
		if !errors.Is(err, ErrTemplate) {
			t.Errorf("%v is not an ErrTemplate", err)
		}
		return err
	}
	render := func() { _, err = tmpl.RenderJSON(t.Context(), []byte(hello)) }
	within(t, render)
	if err != nil && !failed(err) {
		t.Errorf("%v is not an error of the rendering", err)
	}
	inMemory(t, maxMemory+perByte*len(hello)+maxMemory/4, render)
	return err
}
