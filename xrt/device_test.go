package xrt_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/npukit/npukit/internal/xrttest"
	"github.com/npukit/npukit/xrt"
)

func TestDeviceInfo(t *testing.T) {
	xrttest.Open(t)
	if v := must[string](t)(xrt.LibraryVersion()); !strings.HasPrefix(v, "2.") || v < "2.25" {
		t.Errorf("XRT %q", v)
	}
	if n := must[int](t)(xrt.Count()); n != 1 {
		t.Errorf("%d devices", n)
	}
	dev := must[*xrt.Device](t)(xrt.Open(0))
	same := must[*xrt.Device](t)(xrt.OpenBDF("0000:c5:00.1"))
	closing(t, dev, same)
	if name := must[string](t)(same.Name()); name != "NPU Strix" {
		t.Errorf("name %q", name)
	}
	if bdf := must[string](t)(dev.Query("bdf")); bdf != "0000:c5:00.1" {
		t.Errorf("BDF %q", bdf)
	}
	for what, has := range map[string]string{"platform": "", "host": "amdxdna", "aie": "", "pcie": "17f0"} {
		text, err := dev.Query(what)
		if err != nil { // the NPU library returns an error for queries specific to Alveo cards
			t.Logf("query %q: %v", what, err)
			continue
		}
		if !json.Valid([]byte(text)) || !strings.Contains(text, has) {
			t.Errorf("query %q: %s", what, text)
		}
	}
	if _, err := dev.Query("weather"); err == nil || !strings.Contains(err.Error(), "thermal") {
		t.Errorf("an unknown topic: error %v does not name those that exist", err)
	}
}

func TestOpenErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		open   func() (*xrt.Device, error)
		want   error
	}{
		"no such index":  {"", func() (*xrt.Device, error) { return xrt.Open(1) }, xrt.ErrNoDevice},
		"negative index": {"", func() (*xrt.Device, error) { return xrt.Open(-1) }, nil},
		"no such BDF":    {"", func() (*xrt.Device, error) { return xrt.OpenBDF("0000:00:00.0") }, nil},
		"not a BDF":      {"", func() (*xrt.Device, error) { return xrt.OpenBDF("NPU") }, nil},
		"not permitted": {"open * EACCES", func() (*xrt.Device, error) { return xrt.Open(0) },
			xrt.ErrPermission},
		"node is missing": {"open * ENOENT", func() (*xrt.Device, error) { return xrt.Open(0) },
			xrt.ErrNoDevice},
		// the usual 8 MiB; the heap has 64
		"memlock": {"limit memlock 8388608", openAndAlloc, xrt.ErrMemlock},
	} {
		t.Run(name, func(t *testing.T) {
			emu := xrttest.Open(t)
			ok(t, emu.Script(tc.script))
			dev, err := tc.open()
			if err == nil || tc.want != nil && !errors.Is(err, tc.want) {
				t.Fatalf("%v, want %v", err, tc.want)
			}
			t.Log(err)
			if dev != nil {
				t.Error("a device with an error")
			}
			ok(t, emu.Script(""))
			closing(t, must[*xrt.Device](t)(openAndAlloc())) // nothing leaks
		})
	}
}

// openAndAlloc opens the device and allocates a buffer: XRT allocates the heap on first use.
func openAndAlloc() (*xrt.Device, error) {
	dev, err := xrt.Open(0)
	if err != nil {
		return nil, err
	}
	b, err := dev.Alloc(4096)
	if err == nil {
		err = b.Close()
	}
	if err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return dev, nil
}

func TestContextLimit(t *testing.T) {
	for script, most := range map[string]int{"": 32, "limit contexts 3": 3, "create_hwctx 6 EINVAL": 5} {
		t.Run(script, func(t *testing.T) {
			emu := xrttest.Open(t)
			dev := must[*xrt.Device](t)(xrt.Open(0))
			bin := must[*xrt.Xclbin](t)(xrt.ParseXclbin(xrttest.Xclbin()))
			closing(t, dev, bin)
			ok(t, emu.Script(script))
			for i := range most {
				hw, err := dev.NewXclbinContext(bin, nil)
				if err != nil {
					t.Fatalf("context %d: %v", i, err)
				}
				closing(t, hw)
			}
			if n := emu.Stats().Contexts; n != most {
				t.Errorf("the driver has %d contexts", n)
			}
			_, err := dev.NewXclbinContext(bin, nil)
			if !errors.Is(err, xrt.ErrNoContext) {
				t.Errorf("%v, want ErrNoContext", err)
			}
			t.Log(err)
		})
	}
}

func TestMissingKernels(t *testing.T) {
	eachFlow(t, func(t *testing.T, x *bench) {
		full := !xrt.IsXclbin(x.kernel)
		for _, name := range []string{"nope", "main:nope", "", ":", "main:", ":vadd", "main",
			"MLIR_AIE\x00", strings.Repeat("x", 1<<16)} {
			open := x.hw.Kernel
			if full {
				open = x.hw.ELFKernel
			}
			if _, err := open(name); err == nil || name != "" && len(name) < 99 &&
				!errors.Is(err, xrt.ErrNoKernel) {
				t.Errorf("%.20q: %v, want ErrNoKernel", name, err)
			}
		}
	})
}

func TestRemovedDevice(t *testing.T) {
	eachFlow(t, func(t *testing.T, x *bench) {
		r, next, list := x.run(), x.run(), must[*xrt.Runlist](t)(x.hw.NewRunlist())
		closing(t, list)
		ok(t, x.emu.Script("run 1 remove"))
		ok(t, r.Start())
		err := r.Wait(t.Context())
		if !errors.Is(err, xrt.ErrAborted) {
			t.Errorf("run in progress: %v, want ErrAborted", err)
		}
		if err := next.Start(); !errors.Is(err, xrt.ErrDeviceLost) {
			t.Errorf("next run: %v, want ErrDeviceLost", err)
		}
		if _, err := x.dev.Alloc(4096); !errors.Is(err, xrt.ErrDeviceLost) {
			t.Errorf("a buffer: %v, want ErrDeviceLost", err)
		}
		if err := x.a.Sync(xrt.ToDevice, 0, 4); !errors.Is(err, xrt.ErrDeviceLost) {
			t.Errorf("a sync: %v, want ErrDeviceLost", err)
		}
		// Closing everything must not crash or leak.
		for _, c := range []interface{ Close() error }{r, next, list, x.kernel, x.hw, x.a, x.b,
			x.c, x.dev} {
			ok(t, c.Close())
		}
	})
}

func TestLastError(t *testing.T) {
	x := xclbinBench(t)
	if text := must[string](t)(x.dev.LastError()); text != "" {
		t.Errorf("before any: %q", text)
	}
	// Invalid memory access by an AIE core: error number 6, driver AIE 4, severity critical 3,
	// module core 3, class AIE 2 (xrt_error_code.h).
	const code = 6 | 4<<16 | 3<<24 | 3<<32 | 2<<40
	ok(t, x.emu.Script(fmt.Sprint("run 1 async ", uint64(code))))
	r := x.run()
	ok(t, r.Start())
	if err := r.Wait(t.Context()); !errors.Is(err, xrt.ErrFailed) {
		t.Errorf("%v, want ErrFailed", err)
	}
	text := must[string](t)(x.dev.LastError())
	if !strings.Contains(text, fmt.Sprintf("%#x", int64(code))) || !strings.Contains(text, "AIE_ACCESS") ||
		!strings.Contains(text, time.Now().UTC().Format("2006-01-02T15")) {
		t.Errorf("%q, want code %#x and the time", text, int64(code))
	}
}

func TestFailedOpenDoesNotLeak(t *testing.T) {
	for _, script := range []string{"create_bo 1 ENOMEM", "create_bo 2 ENOMEM",
		"create_bo 3 ENOMEM", "mmap 1 EAGAIN", "mmap 2 EAGAIN",
		"create_hwctx 1 EIO"} {
		t.Run(script, func(t *testing.T) {
			emu := xrttest.Open(t)
			stream := transfers(xrttest.NewELFStream(2))
			data := xrttest.FullELF(t, 3, xrttest.Instance{Name: "vadd", Stream: stream})
			ok(t, emu.Script(script))
			elf := must[*xrt.ELF](t)(xrt.ParseELF(data))
			closing(t, elf)
			failed := func() error {
				dev, err := xrt.Open(0)
				if err != nil {
					return err
				}
				defer dev.Close()
				a, err := dev.Alloc(4096)
				if err != nil {
					return err
				}
				defer a.Close()
				hw, err := dev.NewELFContext(elf, nil)
				if err != nil {
					return err
				}
				defer hw.Close()
				k, err := hw.ELFKernel("main:vadd")
				if err != nil {
					return err
				}
				defer k.Close()
				r, err := k.NewRun()
				if err != nil {
					return err
				}
				return r.Close()
			}()
			var e *xrt.Error
			if !errors.As(failed, &e) || e.Errno == 0 {
				t.Errorf("%v", failed)
			}
			t.Log(failed)
		})
	}
}

func TestQoS(t *testing.T) {
	emu := xrttest.Open(t)
	dev := must[*xrt.Device](t)(xrt.Open(0))
	bin := must[*xrt.Xclbin](t)(xrt.ParseXclbin(xrttest.Xclbin()))
	hw := must[*xrt.HWContext](t)(dev.NewXclbinContext(bin,
		&xrt.QoS{GOPS: 1, FPS: 2, DMABandwidth: 3, Latency: 4, FrameTime: 5,
			Priority: "realtime"}))
	closing(t, hw, bin, dev)
	if got, want := emu.QoS(), [6]uint32{1, 2, 3, 4, 5, 0x100}; got != want {
		t.Errorf("the driver was asked for %v, want %v", got, want)
	}
}
