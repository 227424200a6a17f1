package xrt_test

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"

	"github.com/npukit/npukit/internal/xrttest"
	"github.com/npukit/npukit/xrt"
)

func TestMain(m *testing.M) { os.Exit(xrttest.Main(m)) }

// words is the number of 32-bit words in the test vectors.
const words = 1024

// vaddStream is a program that reads arguments 0 and 1 and writes argument 2, 4096 bytes each.
func vaddStream(number uint32) *xrttest.Stream { return transfers(xrttest.NewStream(number)) }

func transfers(s *xrttest.Stream) *xrttest.Stream {
	for arg := range 3 {
		s.Transfer(arg, 0, 4*words)
	}
	return s
}

// vadd adds vectors of 32-bit numbers.
func vadd(args [][]byte) error {
	if len(args) < 3 || args[0] == nil || args[1] == nil || args[2] == nil {
		return errors.New("vadd needs three arguments")
	}
	le := binary.LittleEndian
	for i := 0; i < 4*words; i += 4 {
		le.PutUint32(args[2][i:], le.Uint32(args[0][i:])+le.Uint32(args[1][i:]))
	}
	return nil
}

// must fails the test if a call returns an error.
func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// closing closes objects in the given order when the test ends.
func closing(t testing.TB, list ...interface{ Close() error }) {
	t.Cleanup(func() {
		for _, c := range list {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// bench is an open device with a kernel.
type bench struct {
	t       testing.TB
	emu     *xrttest.Emulator
	dev     *xrt.Device
	hw      *xrt.HWContext
	kernel  *xrt.Kernel
	stream  *xrt.Buffer // instructions of an xclbin kernel, else nil
	nwords  int
	a, b, c *xrt.Buffer
}

// flows are the three ways to run a program. Each returns a bench whose kernel computes c = a + b.
var flows = map[string]func(t testing.TB) *bench{"xclbin": xclbinBench, "full ELF": elfBench,
	"module": moduleBench}

func openBench(t testing.TB) *bench {
	emu := xrttest.Open(t)
	x := &bench{t: t, emu: emu, dev: must[*xrt.Device](t)(xrt.Open(0))}
	closing(t, x.dev)
	x.a, x.b, x.c = x.alloc(), x.alloc(), x.alloc()
	x.fill(x.a, func(i int) uint32 { return uint32(i) })
	x.fill(x.b, func(i int) uint32 { return uint32(2 * i) })
	return x
}

func xclbinBench(t testing.TB) *bench {
	x := openBench(t)
	bin := must[*xrt.Xclbin](t)(xrt.ParseXclbin(xrttest.Xclbin()))
	x.hw = must[*xrt.HWContext](t)(x.dev.NewXclbinContext(bin, nil))
	x.kernel = must[*xrt.Kernel](t)(x.hw.Kernel("MLIR_AIE"))
	closing(t, x.kernel, x.hw, bin)
	x.program(vaddStream(1).Bytes(), vadd)
	return x
}

// program replaces the program that an xclbin kernel runs.
func (x *bench) program(stream []byte, k xrttest.Kernel) {
	x.t.Helper()
	x.emu.Register(stream, k)
	group := must[int](x.t)(x.kernel.Group(1))
	x.stream = must[*xrt.Buffer](x.t)(x.dev.AllocCacheable(len(stream), group))
	closing(x.t, x.stream)
	x.nwords = len(stream) / 4
	must[int](x.t)(x.stream.WriteAt(stream, 0))
	ok(x.t, x.stream.Sync(xrt.ToDevice, 0, len(stream)))
}

func elfBench(t testing.TB) *bench {
	x := openBench(t)
	stream := transfers(xrttest.NewELFStream(2))
	x.emu.Register(stream.Bytes(), vadd)
	elf := must[*xrt.ELF](t)(xrt.ParseELF(xrttest.FullELF(t, 3,
		xrttest.Instance{Name: "vadd", Stream: stream})))
	x.hw = must[*xrt.HWContext](t)(x.dev.NewELFContext(elf, nil))
	x.kernel = must[*xrt.Kernel](t)(x.hw.ELFKernel("main:vadd"))
	closing(t, x.kernel, x.hw, elf)
	return x
}

func moduleBench(t testing.TB) *bench {
	x := openBench(t)
	stream := vaddStream(3).Bytes()
	x.emu.Register(stream, vadd)
	elf := must[*xrt.ELF](t)(xrt.ParseELF(xrttest.ModuleELF(t, stream)))
	bin := must[*xrt.Xclbin](t)(xrt.ParseXclbin(xrttest.Xclbin()))
	x.hw = must[*xrt.HWContext](t)(x.dev.NewXclbinContext(bin, &xrt.QoS{Priority: "high"}))
	x.kernel = must[*xrt.Kernel](t)(x.hw.ModuleKernel(elf, "MLIR_AIE"))
	closing(t, x.kernel, x.hw, bin, elf)
	return x
}

func (x *bench) alloc() *xrt.Buffer {
	x.t.Helper()
	b := must[*xrt.Buffer](x.t)(x.dev.Alloc(4 * words))
	closing(x.t, b)
	return b
}

// fill writes a vector and syncs it.
func (x *bench) fill(b *xrt.Buffer, f func(i int) uint32) {
	x.t.Helper()
	mem := must[[]byte](x.t)(b.Bytes())
	for i := range words {
		binary.LittleEndian.PutUint32(mem[4*i:], f(i))
	}
	ok(x.t, b.Sync(xrt.ToDevice, 0, b.Size()))
}

// wrong syncs a vector back and returns the number of elements that are not f(i).
func (x *bench) wrong(b *xrt.Buffer, f func(i int) uint32) int {
	x.t.Helper()
	ok(x.t, b.Sync(xrt.FromDevice, 0, b.Size()))
	mem := must[[]byte](x.t)(b.Bytes())
	n := 0
	for i := range words {
		if binary.LittleEndian.Uint32(mem[4*i:]) != f(i) {
			n++
		}
	}
	return n
}

func triple(i int) uint32 { return uint32(3 * i) }

// first returns the index of a kernel's first data argument.
func (x *bench) first() int {
	if xrt.IsXclbin(x.kernel) {
		return 3
	}
	return 0
}

// run returns a run with arguments a, b and c.
func (x *bench) run() *xrt.Run {
	x.t.Helper()
	r := must[*xrt.Run](x.t)(x.kernel.NewRun())
	closing(x.t, r)
	x.args(r, x.a, x.b, x.c)
	return r
}

func (x *bench) args(r *xrt.Run, data ...*xrt.Buffer) {
	x.t.Helper()
	if x.first() == 3 {
		ok(x.t, r.SetScalar(0, 3))
		if x.stream != nil {
			ok(x.t, r.SetBuffer(1, x.stream))
			ok(x.t, r.SetScalar(2, uint64(x.nwords)))
		} else {
			ok(x.t, r.SetScalar(1, 0))
			ok(x.t, r.SetScalar(2, 0))
		}
	}
	for i, b := range data {
		ok(x.t, r.SetBuffer(x.first()+i, b))
	}
}

// eachFlow runs a test in all three flows.
func eachFlow(t *testing.T, test func(t *testing.T, x *bench)) {
	for name, open := range flows {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}
