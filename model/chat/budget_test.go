package chat

import (
	"errors"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// The documented limits of a rendering. The factor for CPU time is for the garbage collector, which runs
// in other threads, and for a busy machine.
const (
	budget    = 2 * time.Second
	busy      = 2
	maxMemory = 64 << 20
)

// within runs f and fails unless it keeps the budget of CPU time.
func within(t *testing.T, f func()) {
	t.Helper()
	before, measured := cpuTime()
	f()
	after, _ := cpuTime()
	if !measured {
		t.Log("CPU time is not measured on this system")
	}
	if d := after - before; d > busy*budget {
		t.Errorf("it took %v of CPU time", d)
	}
}

// peak is how many bytes of heap f needs at once, garbage that has not been collected included.
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

// endsInTime holds a hostile template to the limits: parsing and rendering keep the budget of CPU time,
// and rendering that of memory. It returns the error.
func endsInTime(t *testing.T, source string) (err error) {
	t.Helper()
	var tmpl *Template
	within(t, func() { tmpl, err = Parse(source) })
	if err != nil {
		var failed *ParseError
		if !errors.As(err, &failed) {
			t.Errorf("%v is not a ParseError", err)
		}
		return err
	}
	render := func() { _, err = tmpl.RenderJSON(t.Context(), []byte(hello)) }
	within(t, render)
	var failed *RenderError
	if err != nil && !errors.As(err, &failed) {
		t.Errorf("%v is not a RenderError", err)
	}
	if n := peak(render); n > maxMemory+8*len(hello)+maxMemory/4 {
		t.Errorf("it needs %d MiB at once", n>>20)
	}
	return err
}
