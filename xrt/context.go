package xrt

import (
	"runtime"
	"strings"
	"unsafe"
)

// QoS contains hints for the driver. Zero fields are ignored. With no hints the driver already runs
// the array at its highest clock.
type QoS struct {
	GOPS         uint32 // operations per second, in 10^9
	FPS          uint32 // runs per second
	DMABandwidth uint32 // MB/s
	Latency      uint32 // of one run, ms
	FrameTime    uint32 // time of a run on the device, ms
	Priority     string // "low", "normal", "high" or "realtime", relative to other contexts; "" for the default
}

// priorities are the driver's numbers (amdxdna_accel.h).
var priorities = map[string]uint32{"realtime": 0x100, "high": 0x180, "normal": 0x200, "low": 0x280}

// pairs returns the non-zero fields as the xdna library's names and values.
func (q *QoS) pairs() (names []string, values []uint32, err error) {
	if q == nil {
		return nil, nil, nil
	}
	priority, ok := priorities[q.Priority]
	if !ok && q.Priority != "" {
		return nil, nil, errorf("open context: priority %q: want low, normal, high or realtime", q.Priority)
	}
	for _, p := range []struct {
		name  string
		value uint32
	}{{"gops", q.GOPS}, {"fps", q.FPS}, {"dma_bandwidth", q.DMABandwidth}, {"latency",
		q.Latency}, {"frame_execution_time", q.FrameTime},
		{"priority", priority}} {
		if p.value != 0 {
			names, values = append(names, p.name), append(values, p.value)
		}
	}
	return names, values, nil
}

// HWContext is a share of a device, configured with one binary (xrt::hw_context). The driver has 16
// to 32 of them for all processes and switches between them. Opening one takes about 35 ms.
type HWContext struct {
	object  *object
	kernels []KernelInfo
}

// NewXclbinContext opens a context configured with an xclbin. qos may be nil. The error may be
// [ErrNoContext].
func (d *Device) NewXclbinContext(x *Xclbin, qos *QoS) (*HWContext, error) {
	names, values, err := qos.pairs()
	if err != nil {
		return nil, err
	}
	return d.newContext(x.object, x.kernels, func(dev, bin unsafe.Pointer) (unsafe.Pointer, *failure) {
		return nativeContextXclbin(dev, bin, names, values)
	})
}

// NewELFContext opens a context configured with a full ELF. qos may be nil. The error may be
// [ErrNoContext].
func (d *Device) NewELFContext(e *ELF, qos *QoS) (*HWContext, error) {
	if !e.full {
		return nil, errorf("open context: the ELF has only instructions: open the context with its " +
			"xclbin and use ModuleKernel")
	}
	names, values, err := qos.pairs()
	if err != nil {
		return nil, err
	}
	return d.newContext(e.object, e.kernels, func(dev, bin unsafe.Pointer) (unsafe.Pointer, *failure) {
		return nativeContextELF(dev, bin, names, values)
	})
}

func (d *Device) newContext(bin *object, kernels []KernelInfo,
	open func(dev, bin unsafe.Pointer) (unsafe.Pointer, *failure)) (*HWContext, error) {
	c := &HWContext{kernels: kernels}
	err := d.object.do(func(dev unsafe.Pointer) error {
		return bin.do(func(bin unsafe.Pointer) error {
			ptr, f := open(dev, bin)
			if err := fail(f, "open hardware context"); err != nil {
				return err
			}
			c.object = newObject("hardware context", ptr, nativeContextFree)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	runtime.AddCleanup(c, (*object).close, c.object)
	return c, nil
}

// Close closes the context. It is freed when its kernels, runs and runlists are closed too.
func (c *HWContext) Close() error {
	c.object.close()
	return nil
}

// Kernel is a function of a binary in a context.
type Kernel struct {
	object *object
	hw     *object // of the context
	info   KernelInfo
}

// Kernel opens a kernel of the context's xclbin. The error may be [ErrNoKernel].
func (c *HWContext) Kernel(name string) (*Kernel, error) {
	return c.newKernel(name, func(ctx unsafe.Pointer) (unsafe.Pointer, *failure) {
		return nativeKernelXclbin(ctx, name)
	})
}

// ELFKernel opens an instance of a kernel in the context's full ELF, e.g. "main:vadd". The error
// may be [ErrNoKernel].
func (c *HWContext) ELFKernel(instance string) (*Kernel, error) {
	// XRT accepts some names without an instance, with which the device hangs.
	if name, inst, ok := strings.Cut(instance, ":"); !ok || name == "" || inst == "" {
		return nil, errorf("kernel %q: want kernel:instance for an ELF: %w", instance, ErrNoKernel)
	}
	return c.newKernel(instance, func(ctx unsafe.Pointer) (unsafe.Pointer, *failure) {
		return nativeKernelELF(ctx, instance)
	})
}

// ModuleKernel opens a kernel of the context's xclbin that runs the instructions of an ELF. The
// error may be [ErrNoKernel].
func (c *HWContext) ModuleKernel(e *ELF, name string) (k *Kernel, err error) {
	err = e.object.do(func(elf unsafe.Pointer) error {
		k, err = c.newKernel(name, func(ctx unsafe.Pointer) (unsafe.Pointer, *failure) {
			return nativeKernelModule(ctx, elf, name)
		})
		return err
	})
	return k, err
}

func (c *HWContext) newKernel(name string, open func(ctx unsafe.Pointer) (unsafe.Pointer,
	*failure)) (*Kernel, error) {
	if strings.ContainsRune(name, 0) {
		return nil, errorf("kernel %q: name contains NUL: %w", name, ErrNoKernel)
	}
	k := &Kernel{hw: c.object, info: c.info(name)}
	err := c.object.do(func(ctx unsafe.Pointer) error {
		ptr, f := open(ctx)
		if err := fail(f, "kernel %q", name); err != nil {
			return err
		}
		k.object = newObject("kernel", ptr, nativeKernelFree)
		return nil
	})
	if err != nil {
		return nil, err
	}
	runtime.AddCleanup(k, (*object).close, k.object)
	return k, nil
}

func (c *HWContext) info(name string) KernelInfo {
	base, _, _ := strings.Cut(name, ":")
	for _, k := range c.kernels {
		if k.Name == base {
			return k
		}
	}
	return KernelInfo{Name: name}
}

// Group returns the memory group of an xclbin kernel's argument, for AllocCacheable.
func (k *Kernel) Group(arg int) (int, error) {
	group := 0
	err := k.checkArg(arg)
	if err == nil {
		err = k.object.do(func(ptr unsafe.Pointer) error {
			n, f := nativeKernelGroup(ptr, arg)
			group = n
			return fail(f, "memory group of argument %d", arg)
		})
	}
	return group, err
}

// checkArg returns an error if the kernel has no argument arg. XRT would accept some such indices
// as other arguments.
func (k *Kernel) checkArg(arg int) error {
	if arg < 0 || arg >= k.info.NumArgs {
		return errorf("argument %d: kernel %q has %d", arg, k.info.Name, k.info.NumArgs)
	}
	return nil
}

// Close closes the kernel. Its runs stay usable.
func (k *Kernel) Close() error {
	k.object.close()
	return nil
}

// commandBytes returns the size of the arguments in a command. The command of an ELF has 52 bytes
// of instruction addresses instead.
func (k *Kernel) commandBytes() int {
	n := 52
	for _, a := range k.info.args {
		n = max(n, a.offset+a.size)
	}
	return n
}
