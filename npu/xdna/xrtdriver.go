package xdna

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/xrt"
)

// xrtDriver implements driver over XRT.
type xrtDriver struct {
	dev  *xrt.Device
	text string
}

// openXRT opens the NPU with the given PCI address, or the first one if bdf is "".
func openXRT(bdf string) (*xrtDriver, error) {
	open := func() (*xrt.Device, error) { return xrt.Open(0) }
	if bdf != "" {
		open = func() (*xrt.Device, error) { return xrt.OpenBDF(bdf) }
	}
	dev, err := open()
	if err != nil {
		return nil, err
	}
	name, err := dev.Name()
	if err != nil {
		name = "NPU"
	}
	if os.Getenv("NPUEMU_ROOT") != "" { // set by the emulated driver of package internal/xrttest
		name = "emulated " + name
	}
	if v, err := xrt.LibraryVersion(); err == nil {
		name += ", XRT " + v
	}
	return &xrtDriver{dev, name}, nil
}

func (d *xrtDriver) name() string { return d.text }
func (d *xrtDriver) close() error { return d.dev.Close() }

func (d *xrtDriver) alloc(n int) (memory, error)     { return newMemory(d.dev.Alloc(n)) }
func (d *xrtDriver) wrap(mem []byte) (memory, error) { return newMemory(d.dev.Wrap(mem)) }

// xrtMemory is an XRT buffer and its host view.
type xrtMemory struct {
	*xrt.Buffer
	view []byte
}

func newMemory(b *xrt.Buffer, err error) (memory, error) {
	if err != nil {
		return nil, err
	}
	view, err := b.Bytes()
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return &xrtMemory{b, view}, nil
}

func (m *xrtMemory) bytes() []byte { return m.view }
func (m *xrtMemory) close() error  { return m.Close() }

func (m *xrtMemory) sub(offset, n int) (memory, error) { return newMemory(m.Sub(offset, n)) }

func (m *xrtMemory) sync(dir npu.Direction, offset, n int) error {
	if dir == npu.ToDevice {
		return m.Sync(xrt.ToDevice, offset, n)
	}
	return m.Sync(xrt.FromDevice, offset, n)
}

func (d *xrtDriver) load(path string, elf bool) (config, error) {
	if elf {
		e, err := xrt.LoadELF(path)
		if err != nil {
			return nil, err
		}
		if !e.Full() {
			return nil, errors.Join(fmt.Errorf("npu/xdna: %s contains only instructions: want a "+
				"full ELF with the array configuration", path), e.Close())
		}
		return &xrtConfig{dev: d.dev, elf: e, path: path}, nil
	}
	x, err := xrt.LoadXclbin(path)
	if err != nil {
		return nil, err
	}
	return &xrtConfig{dev: d.dev, xclbin: x, path: path}, nil
}

// xrtConfig is an ELF or an xclbin.
type xrtConfig struct {
	dev    *xrt.Device
	elf    *xrt.ELF
	xclbin *xrt.Xclbin
	path   string
}

// dataArgs is the index of the first data buffer of an xclbin kernel, after opcode, instructions
// and their length.
const dataArgs = 3

func (c *xrtConfig) check(a *Artefact, args int) error {
	var kernels []xrt.KernelInfo
	name, before := a.Kernel, dataArgs
	if c.elf != nil {
		kernels, before = c.elf.Kernels(), 0
		name = a.Kernel[:len(a.Kernel)-len(a.instance())-1]
	} else {
		kernels = c.xclbin.Kernels()
	}
	i := slices.IndexFunc(kernels, func(k xrt.KernelInfo) bool { return k.Name == name })
	if i < 0 {
		return fmt.Errorf("npu/xdna: %s has no kernel %q, but %v: %w", c.path, name,
			kernelNames(kernels), xrt.ErrNoKernel)
	}
	k := kernels[i]
	if c.elf != nil && !slices.Contains(k.Instances, a.instance()) {
		return fmt.Errorf("npu/xdna: %s: kernel %q has no instance %q, but %q: %w", c.path, name,
			a.instance(), k.Instances, xrt.ErrNoKernel)
	}
	// All instances of a kernel share its argument list, so an instance may use fewer arguments if
	// there are several.
	if have := k.NumArgs - before; args > have || args < have && c.elf != nil && len(k.Instances) == 1 {
		return fmt.Errorf("npu/xdna: %s: %s has %d arguments, the program has %d: compile it for "+
			"this model and sequence length",
			c.path, a.Kernel, have, args)
	}
	return nil
}

func kernelNames(kernels []xrt.KernelInfo) (names []string) {
	for _, k := range kernels {
		names = append(names, k.Name)
	}
	return names
}

func (c *xrtConfig) open() (hwContext, error) {
	var hw *xrt.HWContext
	var err error
	if c.elf != nil {
		hw, err = c.dev.NewELFContext(c.elf, nil)
	} else {
		hw, err = c.dev.NewXclbinContext(c.xclbin, nil)
	}
	if err != nil {
		return nil, err
	}
	return &xrtContext{c.dev, hw}, nil
}

func (c *xrtConfig) close() error {
	if c.elf != nil {
		return c.elf.Close()
	}
	return c.xclbin.Close()
}

type xrtContext struct {
	dev *xrt.Device
	*xrt.HWContext
}

func (c *xrtContext) close() error { return c.Close() }

func (c *xrtContext) kernel(a *Artefact) (kernel, error) {
	if a.isELF() {
		k, err := c.ELFKernel(a.Kernel)
		if err != nil {
			return nil, err
		}
		return &xrtKernel{Kernel: k}, nil
	}
	k, err := c.Kernel(a.Kernel)
	if err != nil {
		return nil, err
	}
	x := &xrtKernel{Kernel: k}
	if err := x.instructions(c.dev, a.Instructions); err != nil {
		return nil, errors.Join(err, x.close())
	}
	return x, nil
}

// xrtKernel is a kernel and, for an xclbin, its instruction stream.
type xrtKernel struct {
	*xrt.Kernel
	stream *xrt.Buffer
	words  int
}

// instructions loads an instruction stream into the device heap.
func (k *xrtKernel) instructions(dev *xrt.Device, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("npu/xdna: %w", err)
	}
	// The fourth word of the header is the length in bytes (aie-rt transaction format). A truncated
	// stream would hang the array.
	if len(data) < 16 || len(data)%4 != 0 ||
		uint64(binary.LittleEndian.Uint32(data[12:])) > uint64(len(data)) {
		return fmt.Errorf("npu/xdna: %s: %d bytes are not a complete instruction stream", path, len(data))
	}
	group, err := k.Group(1)
	if err != nil {
		return err
	}
	if k.stream, err = dev.AllocCacheable(len(data), group); err != nil {
		return err
	}
	if _, err := k.stream.WriteAt(data, 0); err != nil {
		return err
	}
	k.words = len(data) / 4
	return k.stream.Sync(xrt.ToDevice, 0, len(data))
}

func (k *xrtKernel) chain() int { return k.RunsInChain() }

func (k *xrtKernel) close() error {
	err := k.Kernel.Close()
	if k.stream != nil {
		err = errors.Join(err, k.stream.Close())
	}
	return err
}

// opcodeRun is the xclbin kernel opcode that runs an instruction stream (mlir-aie).
const opcodeRun = 3

func (k *xrtKernel) run() (run, error) {
	r, err := k.NewRun()
	if err != nil {
		return nil, err
	}
	if k.stream == nil {
		return &xrtRun{r, 0}, nil
	}
	if err = r.SetScalar(0, opcodeRun); err == nil {
		if err = r.SetBuffer(1, k.stream); err == nil {
			err = r.SetScalar(2, uint64(k.words))
		}
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return &xrtRun{r, dataArgs}, nil
}

// xrtRun is a run and the index of its first data argument.
type xrtRun struct {
	*xrt.Run
	first int
}

func (r *xrtRun) set(arg int, m memory) error    { return r.SetBuffer(r.first+arg, m.(*xrtMemory).Buffer) }
func (r *xrtRun) start() error                   { return r.Start() }
func (r *xrtRun) wait(ctx context.Context) error { return r.Wait(ctx) }
func (r *xrtRun) close() error                   { return r.Close() }

func (c *xrtContext) list() (runlist, error) {
	l, err := c.NewRunlist()
	if err != nil {
		return nil, err
	}
	return &xrtList{l}, nil
}

type xrtList struct{ *xrt.Runlist }

func (l *xrtList) add(r run) error                { return l.Add(r.(*xrtRun).Run) }
func (l *xrtList) execute() error                 { return l.Execute() }
func (l *xrtList) wait(ctx context.Context) error { return l.Wait(ctx) }
func (l *xrtList) reset() error                   { return l.Reset() }
func (l *xrtList) close() error                   { return l.Close() }
