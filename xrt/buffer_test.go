//go:build linux

package xrt_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"syscall"
	"testing"
	"unsafe"

	"github.com/npukit/npukit/internal/xrttest"
	"github.com/npukit/npukit/xrt"
)

// The emulated device has a separate view of memory: without a sync, the other side does not see
// new data.
func TestMissingSync(t *testing.T) {
	half := 4 * words / 2
	for name, tc := range map[string]struct {
		sync  func(x *bench) error // syncs a, whose new contents are 7*i
		fetch func(x *bench) error
		wrong int // number of elements that are not 7*i + 2*i
	}{
		"both right": {func(x *bench) error { return x.a.Sync(xrt.ToDevice, 0, 2*half) },
			func(x *bench) error { return x.c.Sync(xrt.FromDevice, 0, 2*half) }, 0},
		"input not synced": {func(*bench) error { return nil },
			func(x *bench) error { return x.c.Sync(xrt.FromDevice, 0, 2*half) }, words - 1},
		"output not synced": {func(x *bench) error { return x.a.Sync(xrt.ToDevice, 0, 2*half) },
			func(*bench) error { return nil }, words - 1},
		"wrong direction": {func(x *bench) error { return x.a.Sync(xrt.ToDevice, 0, 2*half) },
			func(x *bench) error { return x.c.Sync(xrt.ToDevice, 0, 2*half) }, words - 1},
		"first half of input": {func(x *bench) error { return x.a.Sync(xrt.ToDevice, 0, half) },
			func(x *bench) error { return x.c.Sync(xrt.FromDevice, 0, 2*half) }, words / 2},
		"second half of both": {func(x *bench) error { return x.a.Sync(xrt.ToDevice, half, half) },
			func(x *bench) error { return x.c.Sync(xrt.FromDevice, half, half) }, words/2 - 1},
		"one element": {func(x *bench) error { return x.a.Sync(xrt.ToDevice, 4*5, 4) },
			func(x *bench) error { return x.c.Sync(xrt.FromDevice, 0, 2*half) }, words - 2},
	} {
		t.Run(name, func(t *testing.T) {
			x := xclbinBench(t)
			r := x.run()
			mem := must[[]byte](t)(x.a.Bytes())
			for i := range words {
				mem[4*i], mem[4*i+1] = byte(7*i), byte(7*i>>8)
			}
			ok(t, tc.sync(x))
			ok(t, r.Start())
			ok(t, r.Wait(t.Context()))
			ok(t, tc.fetch(x))
			got, wrong := must[[]byte](t)(x.c.Bytes()), 0
			for i := range words {
				if want := 9 * i; got[4*i] != byte(want) || got[4*i+1] != byte(want>>8) {
					wrong++
				}
			}
			if wrong != tc.wrong {
				t.Errorf("%d elements are wrong, want %d", wrong, tc.wrong)
			}
		})
	}
}

func TestUnsyncedInstructions(t *testing.T) {
	x := xclbinBench(t)
	other := vaddStream(9).Bytes()
	x.emu.Register(other, vadd)
	buf := must[*xrt.Buffer](t)(x.dev.AllocCacheable(len(other), must[int](t)(x.kernel.Group(1))))
	closing(t, buf)
	must[int](t)(buf.WriteAt(other, 0)) // not synced
	r := x.run()
	ok(t, r.SetBuffer(1, buf))
	ok(t, r.Start())
	if err := r.Wait(t.Context()); !errors.Is(err, xrt.ErrFailed) {
		t.Errorf("%v, want ErrFailed", err)
	}
	if v := x.emu.Violations(); len(v) != 1 {
		t.Errorf("violations %q", v)
	}
}

func TestSub(t *testing.T) {
	eachFlow(t, func(t *testing.T, x *bench) {
		big := must[*xrt.Buffer](t)(x.dev.Alloc(5 * 4 * words))
		sub := must[*xrt.Buffer](t)(big.Sub(2*4*words, 4*words))
		subsub := must[*xrt.Buffer](t)(sub.Sub(4*words/2, 8))
		closing(t, big, subsub, sub)
		if sub.Size() != 4*words || xrt.AddressOf(sub) != xrt.AddressOf(big)+2*4*words ||
			xrt.AddressOf(subsub) != xrt.AddressOf(sub)+4*words/2 {
			t.Errorf("size %d, address %#x, parent %#x", sub.Size(), xrt.AddressOf(sub), xrt.AddressOf(big))
		}
		x.fill(sub, func(i int) uint32 { return uint32(5 * i) })
		if mem := must[[]byte](t)(big.Bytes()); mem[2*4*words+4] != 5 || mem[2*4*words-4] != 0 {
			t.Error("the parent's bytes differ from the part's")
		}
		r := x.run()
		x.args(r, sub, x.b, x.c)
		ok(t, big.Close()) // the part keeps the memory alive
		ok(t, r.Start())
		ok(t, r.Wait(t.Context()))
		if n := x.wrong(x.c, func(i int) uint32 { return uint32(7 * i) }); n != 0 {
			t.Errorf("%d elements are wrong", n)
		}
	})
}

func TestWrap(t *testing.T) {
	x := xclbinBench(t)
	page := os.Getpagesize()
	mem := must[[]byte](t)(syscall.Mmap(-1, 0, 4*page, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE))
	defer func() { ok(t, syscall.Munmap(mem)) }()
	user := must[*xrt.Buffer](t)(x.dev.Wrap(mem))
	r := x.run()
	x.args(r, x.a, x.b, user)
	ok(t, r.Start())
	ok(t, r.Wait(t.Context()))
	ok(t, user.Sync(xrt.FromDevice, 0, 4*words))
	if mem[4] != 3 || mem[8] != 6 || mem[4*words] != 0 {
		t.Errorf("% x", mem[:16])
	}
	ok(t, r.Close())
	ok(t, user.Close())
	for name, bad := range map[string][]byte{"nothing": nil, "empty": mem[:0],
		"off a page boundary": mem[8 : page+8], "part of a page": mem[:page/2]} {
		if _, err := x.dev.Wrap(bad); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestReadAtWriteAt(t *testing.T) {
	x := openBench(t)
	b := must[*xrt.Buffer](t)(x.dev.Alloc(10))
	closing(t, b)
	must[int](t)(b.WriteAt([]byte("0123456789"), 0))
	must[int](t)(b.WriteAt(nil, 10))
	p := make([]byte, 4)
	if n, err := b.ReadAt(p, 3); n != 4 || err != nil || string(p) != "3456" {
		t.Errorf("%d, %v, %q", n, err, p)
	}
	if n, err := b.ReadAt(p, 8); n != 2 || err != io.EOF || !bytes.Equal(p[:n], []byte("89")) {
		t.Errorf("past the end: %d, %v, %q", n, err, p[:n])
	}
	for name, err := range map[string]error{
		"write past the end":     func() error { _, err := b.WriteAt(p, 7); return err }(),
		"write before the start": func() error { _, err := b.WriteAt(p, -1); return err }(),
		"write at an overflow":   func() error { _, err := b.WriteAt(p, math.MaxInt64-1); return err }(),
		"read before the start":  func() error { _, err := b.ReadAt(p, -1); return err }(),
		"read far past the end":  func() error { _, err := b.ReadAt(p, math.MaxInt64); return err }(),
		"sync past the end":      b.Sync(xrt.ToDevice, 4, 7),
		"sync nothing":           b.Sync(xrt.ToDevice, 4, 0),
		"sync a negative length": b.Sync(xrt.ToDevice, 4, -1),
		"sync at an overflow":    b.Sync(xrt.FromDevice, math.MaxInt, math.MaxInt),
		"sync before the start":  b.Sync(xrt.FromDevice, -4, 4),
		"sync in no direction":   b.Sync(2, 0, 4),
		"part past the end":      func() error { _, err := b.Sub(8, 4); return err }(),
		"part of nothing":        func() error { _, err := b.Sub(8, 0); return err }(),
		"part at an overflow":    func() error { _, err := b.Sub(math.MaxInt, math.MaxInt); return err }(),
		"buffer of nothing":      func() error { _, err := x.dev.Alloc(0); return err }(),
		"buffer of minus one":    func() error { _, err := x.dev.Alloc(-1); return err }(),
		"buffer of all there is": func() error { _, err := x.dev.Alloc(math.MaxInt); return err }(),
		"buffer of 32 TB":        func() error { _, err := x.dev.Alloc(1 << 46); return err }(),
		"group that is none":     func() error { _, err := x.dev.AllocCacheable(64, -1); return err }(),
		"group of 33 bits":       func() error { _, err := x.dev.AllocCacheable(64, 1<<32); return err }(),
	} {
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestHeapLimit(t *testing.T) {
	x := xclbinBench(t)
	group := must[int](t)(x.kernel.Group(1))
	// the heap has 64 MB: the driver returns EAGAIN, and XRT enlarges it
	big := must[*xrt.Buffer](t)(x.dev.AllocCacheable(100<<20, group))
	if s := x.emu.Stats(); s.HeapBytes < 100<<20 {
		t.Errorf("%d bytes of heap in use", s.HeapBytes)
	}
	mem := must[[]byte](t)(big.Bytes())
	mem[0], mem[len(mem)-1] = 1, 2
	ok(t, big.Sync(xrt.ToDevice, 0, big.Size()))
	ok(t, big.Close())
	if b, err := x.dev.AllocCacheable(600<<20, group); err == nil {
		t.Error("600 MB of heap: accepted")
		ok(t, b.Close())
	} else {
		t.Log(err)
	}
	x.a.Sync(xrt.ToDevice, 0, 4) // the device is still usable
}

func TestOutOfMemory(t *testing.T) {
	x := openBench(t)
	ok(t, x.emu.Script("create_bo 1 ENOMEM"))
	_, err := x.dev.Alloc(1 << 20)
	if !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("%v, want ENOMEM", err)
	}
	t.Log(err)
}

func TestDescriptorOutsideBuffer(t *testing.T) {
	for name, stream := range map[string]*xrttest.Stream{
		"past the end":         xrttest.NewStream(20).Transfer(0, 0, 4*words+4096),
		"from past the end":    xrttest.NewStream(21).Transfer(0, 1<<30, 4),
		"of an unset argument": xrttest.NewStream(22).Transfer(4, 0, 4),
	} {
		t.Run(name, func(t *testing.T) {
			x := xclbinBench(t)
			x.program(stream.Bytes(), func([][]byte) error { t.Error("the program ran"); return nil })
			r := x.run()
			ok(t, r.Start())
			err, objections := r.Wait(t.Context()), x.emu.Violations()
			if !errors.Is(err, xrt.ErrFailed) || len(objections) != 1 {
				t.Errorf("%v, violations %q", err, objections)
			}
			t.Log(objections)
		})
	}
}

// With shared virtual addresses, device addresses equal the process's. NPUEMU_SVA selects this mode
// for a second run of the tests.
func TestSharedVirtualAddresses(t *testing.T) {
	if os.Getenv("NPUEMU_SVA") == "" {
		t.Skip("needs NPUEMU_SVA: make test-xrt also runs this mode")
	}
	xrttest.Open(t)
	dev := must[*xrt.Device](t)(xrt.Open(0))
	b := must[*xrt.Buffer](t)(dev.Alloc(8192))
	part := must[*xrt.Buffer](t)(b.Sub(4096, 4096))
	closing(t, part, b, dev)
	for _, b := range []*xrt.Buffer{b, part} {
		if mem := must[[]byte](t)(b.Bytes()); xrt.AddressOf(b) != uint64(uintptr(unsafe.Pointer(&mem[0]))) {
			t.Errorf("device address %#x, host address %p", xrt.AddressOf(b), &mem[0])
		}
	}
}
