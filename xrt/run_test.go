package xrt_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/npukit/npukit/internal/xrttest"
	"github.com/npukit/npukit/xrt"
)

func TestRun(t *testing.T) {
	eachFlow(t, func(t *testing.T, x *bench) {
		r := x.run()
		ok(t, r.Start())
		ok(t, r.Wait(t.Context()))
		if s, err := r.State(); s != "completed" || err != nil {
			t.Errorf("state %v, %v", s, err)
		}
		if n := x.wrong(x.c, triple); n != 0 {
			t.Errorf("%d of %d elements are wrong", n, words)
		}
		ok(t, r.Wait(t.Context())) // Wait may be called again
	})
}

func TestRunWithNewArguments(t *testing.T) {
	eachFlow(t, func(t *testing.T, x *bench) {
		r := x.run()
		ok(t, r.Start())
		ok(t, r.Wait(t.Context()))
		d := x.alloc()
		x.args(r, x.c, x.b, d) // d = (a+b)+b; c stays on the device, so it is not synced
		ok(t, r.Start())
		ok(t, r.Wait(t.Context()))
		if n := x.wrong(d, func(i int) uint32 { return uint32(5 * i) }); n != 0 {
			t.Errorf("%d of %d elements are wrong", n, words)
		}
	})
}

func TestRunsDoNotLeak(t *testing.T) {
	eachFlow(t, func(t *testing.T, x *bench) {
		for range 5 { // XRT keeps a few command buffers for later runs
			r := x.run()
			for range 40 {
				ok(t, r.Start())
				ok(t, r.Wait(t.Context()))
			}
			ok(t, r.Close())
		}
		before, fds, heap, began := x.emu.Stats(), countFDs(t), goHeap(), time.Now()
		r := x.run()
		for i := range 10000 {
			if i%100 == 0 { // create new runs too
				ok(t, r.Close())
				r = must[*xrt.Run](t)(x.kernel.NewRun())
				x.args(r, x.a, x.b, x.c)
			}
			ok(t, r.Start())
			ok(t, r.Wait(t.Context()))
		}
		took := time.Since(began)
		ok(t, r.Close())
		after := x.emu.Stats()
		if n := after.Commands - before.Commands; n != 10000 {
			t.Errorf("the device saw %d commands", n)
		}
		if after.Buffers != before.Buffers || after.HeapBytes != before.HeapBytes ||
			after.LockedBytes != before.LockedBytes {
			t.Errorf("leak: %+v, before %+v", after, before)
		}
		if n := countFDs(t); n != fds {
			t.Errorf("%d open files, before %d", n, fds)
		}
		// A leak of 100 bytes per dispatch would be 1 MB.
		if grown := after.MallocBytes - before.MallocBytes; grown > 256<<10 {
			t.Errorf("C's heap grew by %d bytes", grown)
		}
		if grown := goHeap() - heap; grown > 256<<10 {
			t.Errorf("Go's heap grew by %d bytes", grown)
		}
		if n := x.wrong(x.c, triple); n != 0 {
			t.Errorf("%d of %d elements are wrong", n, words)
		}
		t.Logf("%v per start and wait", took/10000)
	})
}

func TestConcurrentRuns(t *testing.T) {
	x := xclbinBench(t)
	var wg sync.WaitGroup
	for g := range 8 {
		a, c, r := x.alloc(), x.alloc(), must[*xrt.Run](t)(x.kernel.NewRun())
		closing(t, r)
		x.fill(a, func(i int) uint32 { return uint32(g * i) })
		x.args(r, a, x.b, c)
		wg.Go(func() {
			for range 25 {
				if err := errors.Join(r.Start(), r.Wait(context.Background())); err != nil {
					t.Error(err)
					return
				}
			}
			if n := x.wrong(c, func(i int) uint32 { return uint32((g + 2) * i) }); n != 0 {
				t.Errorf("goroutine %d: %d elements are wrong", g, n)
			}
		})
	}
	wg.Wait()
}

func TestWaitCanceled(t *testing.T) {
	x := xclbinBench(t)
	r := x.run()
	ok(t, x.emu.Script("run 1 delay 300"))
	ok(t, r.Start())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	began := time.Now()
	err := r.Wait(ctx)
	// the run takes 300
	if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 250*time.Millisecond {
		t.Errorf("after %v: %v", took, err)
	}
	// The run continues, and must not be changed until it is done.
	for name, call := range map[string]func() error{"Start": r.Start, "SetScalar": func() error {
		return r.SetScalar(0, 3)
	},
		"SetBuffer": func() error { return r.SetBuffer(3, x.b) }} {
		if err := call(); !errors.Is(err, xrt.ErrBusy) {
			t.Errorf("%s on a running run: %v", name, err)
		}
	}
	ok(t, r.Wait(t.Context()))
	if n := x.wrong(x.c, triple); n != 0 {
		t.Errorf("%d elements are wrong", n)
	}
	ok(t, r.Start())
	ok(t, r.Wait(t.Context()))
}

// Objects in use by the device are freed only when it is done, in any order of Close calls.
func TestCloseDuringRun(t *testing.T) {
	eachFlow(t, func(t *testing.T, x *bench) {
		ok(t, x.emu.Script("run 1 delay 300"))
		r := x.run()
		ok(t, r.Start())
		began := time.Now()
		for _, c := range []interface{ Close() error }{x.c, x.dev, r, x.a, x.hw, x.kernel, x.b} {
			ok(t, c.Close())
			ok(t, c.Close()) // idempotent
		}
		if took := time.Since(began); took > 250*time.Millisecond {
			t.Errorf("closing took %v, the run takes 300 ms", took)
		}
		// The cleanup of the test waits for the device and checks that nothing leaked or was freed
		// too early.
	})
}

func TestCloseDuringWait(t *testing.T) {
	x := xclbinBench(t)
	r, list := x.run(), must[*xrt.Runlist](t)(x.hw.NewRunlist())
	other := x.run()
	closing(t, list)
	ok(t, list.Add(other))
	ok(t, x.emu.Script("run 1 delay 150; run 2 delay 50"))
	ok(t, r.Start())
	ok(t, list.Execute())
	ended := make(chan error, 2)
	go func() { ended <- r.Wait(context.Background()) }()
	go func() { ended <- list.Wait(context.Background()) }()
	time.Sleep(10 * time.Millisecond)
	ok(t, r.Close())
	ok(t, list.Close())
	for range 2 {
		select {
		case err := <-ended:
			if !errors.Is(err, xrt.ErrClosed) {
				t.Errorf("%v, want ErrClosed", err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("Wait did not return after Close")
		}
	}
}

// The garbage collector frees unreachable objects, except buffers whose Bytes may be in use.
func TestGarbageCollection(t *testing.T) {
	x := elfBench(t)
	before := x.emu.Stats()
	func() {
		forgotten := must[*xrt.Buffer](t)(x.dev.Alloc(1 << 20))
		must[*xrt.Buffer](t)(forgotten.Sub(0, 4096))
		r, list := must[*xrt.Run](t)(x.kernel.NewRun()), must[*xrt.Runlist](t)(x.hw.NewRunlist())
		x.args(r, x.a, x.b, forgotten)
		ok(t, list.Add(r))
		ok(t, list.Execute()) // without waiting for it
	}()
	held := func() int64 {
		s := x.emu.Stats()
		return s.HeapBytes + s.BufferBytes
	}
	limit := before.HeapBytes + before.BufferBytes + 64<<10
	for deadline := time.Now().Add(5 * time.Second); held() > limit; time.Sleep(time.Millisecond) {
		runtime.GC()
		if time.Now().After(deadline) {
			t.Fatalf("held %+v, before %+v", x.emu.Stats(), before)
		}
	}
}

// A run keeps its buffers alive until it is closed.
func TestRunKeepsBuffers(t *testing.T) {
	x := elfBench(t)
	before := x.emu.Stats().BufferBytes
	r := must[*xrt.Run](t)(x.kernel.NewRun())
	closing(t, r)
	func() {
		b := must[*xrt.Buffer](t)(x.dev.Alloc(1 << 20))
		must[int](t)(b.WriteAt(make([]byte, 4*words), 0))
		ok(t, b.Sync(xrt.ToDevice, 0, 4*words))
		x.args(r, x.a, b, x.c)
	}()
	for range 20 {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	ok(t, r.Start())
	ok(t, r.Wait(t.Context()))
	if n := x.wrong(x.c, func(i int) uint32 { return uint32(i) }); n != 0 {
		t.Errorf("%d elements are wrong", n)
	}
	ok(t, r.Close())
	held := func() int64 { return x.emu.Stats().BufferBytes }
	for deadline := time.Now().Add(5 * time.Second); held() > before+64<<10; time.Sleep(time.Millisecond) {
		runtime.GC()
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes of buffers after the run was closed, before %d",
				x.emu.Stats().BufferBytes, before)
		}
	}
	runtime.KeepAlive(r)
}

func TestBytesKeepBuffer(t *testing.T) {
	x := openBench(t)
	b := must[*xrt.Buffer](t)(x.dev.Alloc(1 << 20))
	mem := must[[]byte](t)(b.Bytes())
	size := x.emu.Stats().BufferBytes
	object := xrt.ObjectOf(b) // the object that Close closes
	b = nil
	for range 20 {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	mem[len(mem)-1] = 1 // would fault
	if n := x.emu.Stats().BufferBytes; n != size {
		t.Errorf("%d bytes of buffers, before %d", n, size)
	}
	xrt.CloseObject(object)
}

func TestUseAfterClose(t *testing.T) {
	x := xclbinBench(t)
	r := x.run()
	list := must[*xrt.Runlist](t)(x.hw.NewRunlist())
	bin := must[*xrt.Xclbin](t)(xrt.ParseXclbin(xrttest.Xclbin()))
	closed := []interface{ Close() error }{r, list, x.kernel, x.hw, x.a, bin, x.dev}
	open := x.b
	for _, c := range closed {
		ok(t, c.Close())
	}
	for name, call := range map[string]func() error{
		"Run.Start":         r.Start,
		"Run.Wait":          func() error { return r.Wait(t.Context()) },
		"Run.State":         func() error { _, err := r.State(); return err },
		"Run.SetBuffer":     func() error { return r.SetBuffer(3, open) },
		"Run.SetScalar":     func() error { return r.SetScalar(0, 3) },
		"Runlist.Add":       func() error { return list.Add(r) },
		"Runlist.Execute":   list.Execute,
		"Runlist.Wait":      func() error { return list.Wait(t.Context()) },
		"Runlist.Reset":     list.Reset,
		"Runlist.State":     func() error { _, err := list.State(); return err },
		"Kernel.NewRun":     func() error { _, err := x.kernel.NewRun(); return err },
		"Kernel.Group":      func() error { _, err := x.kernel.Group(1); return err },
		"HWContext.Kernel":  func() error { _, err := x.hw.Kernel("MLIR_AIE"); return err },
		"HWContext.Runlist": func() error { _, err := x.hw.NewRunlist(); return err },
		"Buffer.Bytes":      func() error { _, err := x.a.Bytes(); return err },
		"Buffer.Sync":       func() error { return x.a.Sync(xrt.ToDevice, 0, 4) },
		"Buffer.Sub":        func() error { _, err := x.a.Sub(0, 4); return err },
		"Buffer.ReadAt":     func() error { _, err := x.a.ReadAt(make([]byte, 4), 0); return err },
		"Buffer.WriteAt":    func() error { _, err := x.a.WriteAt(make([]byte, 4), 0); return err },
		"Device.Alloc":      func() error { _, err := x.dev.Alloc(4096); return err },
		"Device.Name":       func() error { _, err := x.dev.Name(); return err },
		"Device.LastError":  func() error { _, err := x.dev.LastError(); return err },
		"Device.NewContext": func() error { _, err := x.dev.NewXclbinContext(bin, nil); return err },
	} {
		if err := call(); !errors.Is(err, xrt.ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", name, err)
		}
	}
}

func TestStartWithClosedBuffer(t *testing.T) {
	eachFlow(t, func(t *testing.T, x *bench) {
		r := x.run()
		ok(t, x.b.Close())
		if err := r.Start(); !errors.Is(err, xrt.ErrClosed) {
			t.Errorf("%v, want ErrClosed", err)
		}
		if err := r.SetBuffer(x.first(), x.b); !errors.Is(err, xrt.ErrClosed) {
			t.Errorf("set a closed buffer: %v, want ErrClosed", err)
		}
	})
}

func TestInvalidArguments(t *testing.T) {
	x := xclbinBench(t)
	r := must[*xrt.Run](t)(x.kernel.NewRun())
	closing(t, r)
	for name, err := range map[string]error{
		"place -1":              r.SetBuffer(-1, x.a),
		"place beyond the last": r.SetBuffer(8, x.a),
		"a number of 9 bytes":   r.SetScalar(2, 1<<32), // ninstr is a uint32_t
		"scalar at no place":    r.SetScalar(99, 0),
		"wait before the start": r.Wait(t.Context()),
		"group of no argument":  func() error { _, err := x.kernel.Group(-1); return err }(),
		"group beyond the last": func() error { _, err := x.kernel.Group(8); return err }(),
	} {
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	ok(t, r.SetScalar(0, 3))
	ok(t, r.SetBuffer(1, x.stream))
	ok(t, r.SetBuffer(3, x.a))
	if err := r.Start(); err == nil { // argument 2, the number of instructions, is not set
		t.Error("a run with a gap in its arguments started")
	}
}

func TestDeviceFaults(t *testing.T) {
	for script, want := range map[string]error{
		"run 2 timeout": xrt.ErrTimeout,
		"run 2 error":   xrt.ErrFailed,
		"run 2 abort":   xrt.ErrAborted,
		"submit 2 EIO":  nil, // any error
	} {
		t.Run(script, func(t *testing.T) {
			eachFlow(t, func(t *testing.T, x *bench) {
				r := x.run()
				ok(t, x.emu.Script(script))
				ok(t, r.Start())
				ok(t, r.Wait(t.Context()))
				err := r.Start()
				if err == nil {
					err = r.Wait(t.Context())
				}
				if err == nil || want != nil && !errors.Is(err, want) {
					t.Fatalf("%v, want %v", err, want)
				}
				if want == xrt.ErrTimeout && !strings.Contains(err.Error(), "txn_op_idx") {
					t.Errorf("%v does not include the instruction at which it hung", err)
				}
				if want != nil { // a failed command cannot be started again
					if err := r.Start(); !errors.Is(err, xrt.ErrSpent) {
						t.Errorf("started again: %v", err)
					}
					if list := must[*xrt.Runlist](t)(x.hw.NewRunlist()); !errors.Is(list.Add(r),
						xrt.ErrSpent) {
						t.Error("a list accepted a failed run")
					} else {
						ok(t, list.Close())
					}
					r = x.run()
				}
				ok(t, r.Start()) // the device has recovered
				ok(t, r.Wait(t.Context()))
				if n := x.wrong(x.c, triple); n != 0 {
					t.Errorf("%d elements are wrong", n)
				}
			})
		})
	}
}

func BenchmarkRun(b *testing.B) {
	for name, open := range flows {
		b.Run(name, func(b *testing.B) {
			x := open(b)
			r := x.run()
			for b.Loop() {
				ok(b, r.Start())
				ok(b, r.Wait(b.Context()))
			}
		})
	}
}

func BenchmarkRunlist(b *testing.B) {
	x := elfBench(b)
	list, _, _ := x.chain(100)
	for b.Loop() {
		ok(b, list.Execute())
		ok(b, list.Wait(b.Context()))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(100*b.N), "ns/run")
}

func countFDs(t testing.TB) int { return len(must[[]os.DirEntry](t)(os.ReadDir("/proc/self/fd"))) }

func goHeap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
