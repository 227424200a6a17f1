package xrt_test

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/internal/xrttest"
	"github.com/npukit/npukit/xrt"
)

// Binaries built by the compilers of mlir-air, Triton-XDNA and IREE, loaded by the real XRT. Go
// functions compute the results of their cores.

func TestMLIRAIRXclbin(t *testing.T) {
	emu := xrttest.Open(t)
	dir := testenv.Shared(t, "npu/mlir-air")
	bin := must[*xrt.Xclbin](t)(xrt.LoadXclbin(filepath.Join(dir, "vector_reciprocal.air.xclbin")))
	stream := must[[]byte](t)(os.ReadFile(filepath.Join(dir, "vector_reciprocal.air.insts.bin")))
	if k := bin.Kernels(); len(k) != 1 || k[0].Name != "MLIR_AIE" || k[0].NumArgs != 8 {
		t.Errorf("kernels %+v", k)
	}
	dev := must[*xrt.Device](t)(xrt.Open(0))
	hw := must[*xrt.HWContext](t)(dev.NewXclbinContext(bin, nil))
	k := must[*xrt.Kernel](t)(hw.Kernel("MLIR_AIE"))
	closing(t, k, hw, bin, dev)

	// Arguments 0 and 1 are the vector and its reciprocals, 65536 words each, accessed by
	// descriptors of two alternating channels.
	const n = 65536
	emu.Register(stream, func(args [][]byte) error {
		for i := 0; i < 4*n; i += 4 {
			v := math.Float32frombits(binary.LittleEndian.Uint32(args[0][i:]))
			binary.LittleEndian.PutUint32(args[1][i:], math.Float32bits(1/v))
		}
		return nil
	})
	instr := must[*xrt.Buffer](t)(dev.AllocCacheable(len(stream), must[int](t)(k.Group(1))))
	in, out := must[*xrt.Buffer](t)(dev.Alloc(4*n)), must[*xrt.Buffer](t)(dev.Alloc(4*n))
	r := must[*xrt.Run](t)(k.NewRun())
	closing(t, r, instr, in, out)
	must[int](t)(instr.WriteAt(stream, 0))
	ok(t, instr.Sync(xrt.ToDevice, 0, instr.Size()))
	mem := must[[]byte](t)(in.Bytes())
	for i := range n {
		binary.LittleEndian.PutUint32(mem[4*i:], math.Float32bits(float32(i+1)))
	}
	ok(t, in.Sync(xrt.ToDevice, 0, in.Size()))
	ok(t, r.SetScalar(0, 3))
	ok(t, r.SetBuffer(1, instr))
	ok(t, r.SetScalar(2, uint64(len(stream)/4)))
	ok(t, r.SetBuffer(3, in))
	ok(t, r.SetBuffer(4, out))
	ok(t, r.Start())
	ok(t, r.Wait(t.Context()))
	ok(t, out.Sync(xrt.FromDevice, 0, out.Size()))
	got := must[[]byte](t)(out.Bytes())
	for i := range n {
		if v := math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:])); v != 1/float32(i+1) {
			t.Fatalf("1/%d = %v", i+1, v)
		}
	}
	// A buffer that is one page too small must fail the descriptor check.
	small := must[*xrt.Buffer](t)(dev.Alloc(4*n - os.Getpagesize()))
	closing(t, small)
	ok(t, r.SetBuffer(4, small))
	ok(t, r.Start())
	if err := r.Wait(t.Context()); err == nil {
		t.Error("descriptors past the end of a buffer: accepted")
	}
	if v := emu.Violations(); len(v) != 1 {
		t.Errorf("violations %q", v)
	}
}

func TestTritonELF(t *testing.T) {
	emu := xrttest.Open(t)
	dir := testenv.Shared(t, "npu/triton-xdna")
	elf := must[*xrt.ELF](t)(xrt.LoadELF(filepath.Join(dir, "aie.elf")))
	dev := must[*xrt.Device](t)(xrt.Open(0))
	closing(t, elf, dev)
	if !elf.Full() || len(elf.Kernels()) == 0 {
		t.Errorf("full %v, kernels %+v", elf.Full(), elf.Kernels())
	}
	hw := must[*xrt.HWContext](t)(dev.NewELFContext(elf, nil))
	closing(t, hw)
	instances := 0
	for _, k := range elf.Kernels() {
		for _, name := range k.Instances {
			kernel := must[*xrt.Kernel](t)(hw.ELFKernel(k.Name + ":" + name))
			run := must[*xrt.Run](t)(kernel.NewRun())
			ok(t, run.Close())
			ok(t, kernel.Close())
			instances++
		}
	}
	if instances == 0 {
		t.Error("no instances")
	}

	// The sequence of square_kernel_0 is also a file next to the ELF.
	k := must[*xrt.Kernel](t)(hw.ELFKernel("square_kernel_0:square_kernel_0_sequence"))
	closing(t, k)
	tritonKernel(t, emu, dev, k, sequenceOf(t, dir, "square_kernel_0"), 1, func(a, _ uint32) uint32 {
		return a * a
	})
}

// The other kernels are array configurations and sequences, from which AMD's assembler builds ELFs.
func TestTritonKernels(t *testing.T) {
	emu := xrttest.Open(t)
	dir := testenv.Shared(t, "npu/triton-xdna")
	dev := must[*xrt.Device](t)(xrt.Open(0))
	closing(t, dev)
	for name, compute := range map[string]func(a, b uint32) uint32{
		"mul_kernel_0": func(a, b uint32) uint32 { return a * b },
		"div_kernel_0": func(a, b uint32) uint32 { return a / b },
		"sub_kernel_0": func(a, b uint32) uint32 { return a - b },
	} {
		t.Run(name, func(t *testing.T) {
			sequence := sequenceOf(t, dir, name)
			pdi := must[[]byte](t)(os.ReadFile(filepath.Join(dir, name+".pdi")))
			elf := must[*xrt.ELF](t)(xrt.ParseELF(xrttest.FullELF(t, 3,
				xrttest.Instance{Name: name, Code: sequence, PDI: pdi})))
			hw := must[*xrt.HWContext](t)(dev.NewELFContext(elf, nil))
			k := must[*xrt.Kernel](t)(hw.ELFKernel("main:" + name))
			closing(t, k, hw, elf)
			tritonKernel(t, emu, dev, k, sequence, 2, compute)
		})
	}
}

func sequenceOf(t *testing.T, dir, name string) []byte {
	return must[[]byte](t)(os.ReadFile(filepath.Join(dir, name+"_"+name+"_sequence.bin")))
}

// tritonKernel runs a kernel with one or two operands. The sequences move each argument in eight
// pieces of 16 KiB, operands first.
func tritonKernel(t *testing.T, emu *xrttest.Emulator, dev *xrt.Device, k *xrt.Kernel,
	sequence []byte, operands int, compute func(a, b uint32) uint32) {
	const n = 8 * 16384 / 4
	le := binary.LittleEndian
	emu.Register(sequence, func(args [][]byte) error {
		for i := 0; i < 4*n; i += 4 {
			var b uint32
			if operands > 1 {
				b = le.Uint32(args[1][i:])
			}
			le.PutUint32(args[operands][i:], compute(le.Uint32(args[0][i:]), b))
		}
		return nil
	})
	r := must[*xrt.Run](t)(k.NewRun())
	closing(t, r)
	var list []*xrt.Buffer
	for arg := range xrt.InfoOf(k).NumArgs {
		b := must[*xrt.Buffer](t)(dev.Alloc(4 * n))
		closing(t, b)
		list = append(list, b)
		mem := must[[]byte](t)(b.Bytes())
		for i := range n {
			le.PutUint32(mem[4*i:], uint32((arg+2)*i+1))
		}
		ok(t, b.Sync(xrt.ToDevice, 0, b.Size()))
		ok(t, r.SetBuffer(arg, b))
	}
	ok(t, r.Start())
	ok(t, r.Wait(t.Context()))
	out := list[operands]
	ok(t, out.Sync(xrt.FromDevice, 0, out.Size()))
	got := must[[]byte](t)(out.Bytes())
	for i := range n {
		if v, want := le.Uint32(got[4*i:]), compute(uint32(2*i+1), uint32(3*i+1)); v != want {
			t.Fatalf("element %d is %d, want %d", i, v, want)
		}
	}
}

func TestIREEXclbin(t *testing.T) {
	xrttest.Open(t)
	bin := must[*xrt.Xclbin](t)(xrt.LoadXclbin(filepath.Join(testenv.Shared(t, "npu/iree"),
		"module_matmul_dispatch_0.xclbin")))
	closing(t, bin)
	if len(bin.Kernels()) == 0 {
		t.Errorf("kernels %+v", bin.Kernels())
	}
}

// Truncated files must return errors, not crash the process.
func TestTruncatedFiles(t *testing.T) {
	xrttest.Open(t)
	x := xrttest.Xclbin()
	e := must[[]byte](t)(os.ReadFile("../internal/xrttest/testdata/vadd.elf"))
	for i := range 64 {
		if _, err := xrt.ParseXclbin(x[:len(x)*i/64]); err == nil {
			t.Errorf("%d of %d bytes of an xclbin: accepted", len(x)*i/64, len(x))
		}
		if _, err := xrt.ParseELF(e[:len(e)*i/64]); err == nil {
			t.Errorf("%d of %d bytes of an ELF: accepted", len(e)*i/64, len(e))
		}
	}
}

// Without the checks, about one in a hundred such files crashes inside XRT.
func TestDamagedFiles(t *testing.T) {
	xrttest.Open(t)
	elf := must[[]byte](t)(os.ReadFile("../internal/xrttest/testdata/vadd.elf"))
	if _, err := xrt.ParseELF(elf[:len(elf)/2]); !errors.Is(err, xrt.ErrDamaged) {
		t.Errorf("half of an ELF: %v, want xrt.ErrDamaged", err)
	}
	if _, err := xrt.ParseXclbin(xrttest.Xclbin()[:1000]); !errors.Is(err, xrt.ErrDamaged) {
		t.Errorf("the beginning of an xclbin: %v, want xrt.ErrDamaged", err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	damaged := func(file []byte) []byte {
		b := slices.Clone(file)
		for range 1 + rnd.IntN(3) {
			b[rnd.IntN(len(b))] = byte(rnd.Uint32())
		}
		return b
	}
	for range 300 {
		if x, err := xrt.ParseXclbin(damaged(xrttest.Xclbin())); err == nil {
			ok(t, x.Close())
		}
		if e, err := xrt.ParseELF(damaged(elf)); err == nil {
			ok(t, e.Close())
		}
	}
}
