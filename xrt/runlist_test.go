package xrt_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/npukit/npukit/internal/xrttest"
	"github.com/npukit/npukit/xrt"
)

// chain returns a list of n runs, each adding b to the previous result, so that the last result is
// a + n*b.
func (x *bench) chain(n int) (list *xrt.Runlist, runs []*xrt.Run, last *xrt.Buffer) {
	x.t.Helper()
	list = must[*xrt.Runlist](x.t)(x.hw.NewRunlist())
	closing(x.t, list)
	from, to, other := x.a, x.alloc(), x.alloc()
	for range n {
		r := must[*xrt.Run](x.t)(x.kernel.NewRun())
		closing(x.t, r)
		x.args(r, from, x.b, to)
		ok(x.t, list.Add(r))
		runs = append(runs, r)
		if from == x.a {
			from = other
		}
		from, to, last = to, from, to
	}
	return list, runs, last
}

func TestRunlist(t *testing.T) {
	for _, n := range []int{1, 24, 25, 50} { // XRT submits 24 at a time
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			eachFlow(t, func(t *testing.T, x *bench) {
				list, _, last := x.chain(n)
				if xrt.LenOf(list) != n {
					t.Errorf("%d runs", xrt.LenOf(list))
				}
				for range 3 {
					before := x.emu.Stats()
					ok(t, list.Execute())
					ok(t, list.Wait(t.Context()))
					after := x.emu.Stats()
					if chains := after.Chains - before.Chains; chains != int64(n+23)/24 ||
						after.Commands-before.Commands != int64(n) {
						t.Errorf("%d chains, %d commands", chains, after.Commands-before.Commands)
					}
				}
				if n := x.wrong(last, func(i int) uint32 { return uint32(i + n*2*i) }); n != 0 {
					t.Errorf("%d elements are wrong", n)
				}
			})
		})
	}
}

func TestRunlistFailure(t *testing.T) {
	for script, want := range map[string]error{"run %d timeout": xrt.ErrTimeout,
		"run %d error": xrt.ErrFailed} {
		for _, place := range []int{0, 1, 23, 24, 29} {
			t.Run(fmt.Sprintf(script, place), func(t *testing.T) {
				eachFlow(t, func(t *testing.T, x *bench) {
					list, runs, _ := x.chain(30)
					ok(t, x.emu.Script(fmt.Sprintf(script, place+1)))
					ok(t, list.Execute())
					err := list.Wait(t.Context())
					var e *xrt.Error
					if !errors.Is(err, want) || !errors.As(err, &e) || e.Run != place {
						t.Fatalf("%v, want %v in run %d", err, want, place)
					}
					// Runs before the failed one are completed, later ones are not.
					for i, r := range runs {
						s := must[xrt.State](t)(r.State())
						if i < place && s != "completed" || i == place && s != e.State ||
							i > place && s != "aborted" {
							t.Errorf("run %d: %v", i, s)
						}
					}
					if err := list.Execute(); !errors.Is(err, xrt.ErrSpent) {
						t.Errorf("executed again: %v", err)
					}
					ok(t, list.Reset())
					if err := runs[0].Start(); !errors.Is(err, xrt.ErrSpent) {
						t.Errorf("a run of it was started: %v", err)
					}
					list, _, last := x.chain(30) // again, without a fault
					ok(t, list.Execute())
					ok(t, list.Wait(t.Context()))
					if n := x.wrong(last, func(i int) uint32 { return uint32(i + 30*2*i) }); n != 0 {
						t.Errorf("%d elements are wrong", n)
					}
				})
			})
		}
	}
}

// The failure is reported when the first chain ends, while the device still executes the others.
func TestFailedRunlistWaits(t *testing.T) {
	eachFlow(t, func(t *testing.T, x *bench) {
		list, runs, last := x.chain(30)
		// the first chain fails at once, the second takes 150 ms
		ok(t, x.emu.Script("run 1 error; run 3 delay 150"))
		began := time.Now()
		ok(t, list.Execute())
		if err := list.Wait(t.Context()); !errors.Is(err, xrt.ErrFailed) {
			t.Fatalf("%v, want ErrFailed", err)
		}
		if took := time.Since(began); took < 140*time.Millisecond {
			t.Errorf("Wait returned after %v", took)
		}
		for _, r := range runs {
			ok(t, r.Close())
		}
		ok(t, list.Close())
		ok(t, last.Close()) // the emulator reports a violation if the device still uses it
	})
}

func TestRunlistErrors(t *testing.T) {
	x := xclbinBench(t)
	list, runs, _ := x.chain(3)
	other := must[*xrt.Runlist](t)(x.hw.NewRunlist())
	hw2 := must[*xrt.HWContext](t)(x.dev.NewXclbinContext(must[*xrt.Xclbin](t)(xrt.ParseXclbin(xrttest.Xclbin())), nil))
	k2 := must[*xrt.Kernel](t)(hw2.Kernel("MLIR_AIE"))
	stranger := must[*xrt.Run](t)(k2.NewRun())
	closing(t, other, stranger, k2, hw2)
	x.args(stranger, x.a, x.b, x.c)
	if err := other.Execute(); err == nil {
		t.Error("an empty list was executed")
	}
	for name, err := range map[string]error{
		"wait before execute":      list.Wait(t.Context()),
		"start of a run in a list": runs[0].Start(),
		"wait for a run in a list": runs[0].Wait(t.Context()),
		"a run that is in it":      list.Add(runs[0]),
		"a run that is in another": other.Add(runs[0]),
		"a run of another context": list.Add(stranger),
	} {
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if xrt.LenOf(list) != 3 {
		t.Errorf("%d runs", xrt.LenOf(list))
	}
	ok(t, x.emu.Script("run 1 delay 150"))
	ok(t, list.Execute())
	for name, call := range map[string]func() error{
		"execute":   list.Execute,
		"reset":     list.Reset,
		"add":       func() error { return list.Add(stranger) },
		"set":       func() error { return runs[2].SetBuffer(3, x.a) },
		"setscalar": func() error { return runs[2].SetScalar(0, 3) },
	} {
		if err := call(); !errors.Is(err, xrt.ErrBusy) {
			t.Errorf("%s while it runs: %v, want ErrBusy", name, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := list.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait: %v", err)
	}
	ok(t, list.Wait(t.Context()))
	ok(t, list.Reset())
	if xrt.LenOf(list) != 0 {
		t.Errorf("%d runs after Reset", xrt.LenOf(list))
	}
	ok(t, runs[0].Start()) // removed from the list
	ok(t, runs[0].Wait(t.Context()))
	ok(t, other.Add(runs[1]))
	ok(t, other.Execute())
	ok(t, other.Wait(t.Context()))
	ok(t, other.Close())
	ok(t, runs[1].Start()) // removed from the list by its Close
	ok(t, runs[1].Wait(t.Context()))
}

func TestCloseRunlistInProgress(t *testing.T) {
	eachFlow(t, func(t *testing.T, x *bench) {
		list, runs, last := x.chain(30)
		ok(t, x.emu.Script("run 1 delay 100; run 30 delay 100"))
		ok(t, list.Execute())
		for _, r := range runs {
			ok(t, r.Close())
		}
		ok(t, last.Close())
		ok(t, list.Close())
		if err := list.Execute(); !errors.Is(err, xrt.ErrClosed) {
			t.Errorf("%v, want ErrClosed", err)
		}
	})
}

// The driver has 4 KiB for the commands of one submission. XRT submits 24 runs at a time regardless
// of their size, and with 13 buffers each they would be aborted. RunsInChain returns how many fit.
func TestRunsInChain(t *testing.T) {
	// by hand: 4096 / (52 + 20 + 8*buffers), at most 24
	for buffers, together := range map[int]int{12: 24, 13: 23, 30: 13} {
		t.Run(fmt.Sprint(buffers), func(t *testing.T) {
			x := openBench(t)
			bin := must[*xrt.Xclbin](t)(xrt.ParseXclbin(xrttest.WideXclbin(buffers)))
			x.hw = must[*xrt.HWContext](t)(x.dev.NewXclbinContext(bin, nil))
			x.kernel = must[*xrt.Kernel](t)(x.hw.Kernel("MLIR_AIE"))
			list := must[*xrt.Runlist](t)(x.hw.NewRunlist())
			closing(t, list, x.kernel, x.hw, bin)
			s := xrttest.NewStream(30)
			data := make([]*xrt.Buffer, buffers)
			for i := range data {
				data[i] = x.c
				s.Transfer(i, 0, 4*words)
			}
			data[0], data[1] = x.a, x.b
			x.program(s.Bytes(), vadd)
			for range 50 {
				r := must[*xrt.Run](t)(x.kernel.NewRun())
				closing(t, r)
				x.args(r, data...)
				ok(t, list.Add(r))
			}
			before := x.emu.Stats()
			ok(t, list.Execute())
			ok(t, list.Wait(t.Context()))
			if n := x.wrong(x.c, triple); n != 0 {
				t.Errorf("%d elements are wrong", n)
			}
			if n, chains := x.kernel.RunsInChain(),
				x.emu.Stats().Chains-before.Chains; n != together || chains != int64((50+n-1)/n) {
				t.Errorf("50 runs were %d chains, a chain takes %d; want %d", chains, n, together)
			}
		})
	}
}
