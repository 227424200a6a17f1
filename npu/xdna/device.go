package xdna

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/dtype"
)

// Options configures Open. The zero value and nil select the defaults.
type Options struct {
	Artefacts string    // folder of compiled programs, see [ReadArtefacts]; "" for $NPUKIT_ARTEFACTS
	Compile   *Compiler // builds programs that the folder lacks; nil for none

	Address  string       // PCI address of the NPU, e.g. "0000:c5:00.1"; "" for the first
	Contexts int          // maximum open hardware contexts; 0 for 8
	Lock     string       // file locked while programs run; "" for MLIR-AIR's npu.lock in os.TempDir()
	Threads  int          // of the host device, see package cpu; 0 for all cores
	Kernels  string       // of the host device, see package cpu; "" for its default
	Log      *slog.Logger // for toolchain information and lost contexts; nil for none
}

// defaultContexts is the default limit of hardware contexts. The driver has 16 to 32 for all
// processes, and a phase of a model uses at most eight programs.
const defaultContexts = 8

// Device is an NPU. Its methods are safe for concurrent use. Concurrent calls to Submit are
// executed one at a time.
type Device struct {
	drv  driver
	info npu.Info
	host *cpu.Device
	log  *slog.Logger

	artefacts *Artefacts
	compile   *Compiler
	lock      *fileLock

	// sem is held by a running Submit and while an object is closed. It is a channel because
	// acquire must return when its context is done. A canceled Submit passes it to a goroutine that
	// waits for the device; inFlight is closed when the device is idle.
	sem      chan struct{}
	inFlight atomic.Pointer[chan struct{}]
	closed   atomic.Bool

	// Guarded by sem.
	contexts contexts
	scratch  scratchPool
	key      []byte // buffer for run keys

	next    atomic.Uint64 // last object ID
	weights weights

	mu      sync.Mutex
	copies  bool               // the driver cannot map process memory, so buffers have a separate device side
	configs map[string]*loaded // binaries by path
}

var _ npu.Hosted = (*Device)(nil)

// Open opens the NPU. It returns [xrt.ErrUnavailable] if the program was built without XRT, and
// another error of package xrt, with advice, if there is no NPU, no permission or too little
// lockable memory; `npukit doctor` finds the cause. It returns an error if the artefact folder
// cannot be read. Missing programs are reported by Load.
func Open(ctx context.Context, opts *Options) (*Device, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("npu/xdna: %w", err)
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Artefacts == "" {
		o.Artefacts = os.Getenv("NPUKIT_ARTEFACTS")
	}
	drv, err := openXRT(o.Address)
	if err != nil {
		return nil, fmt.Errorf("npu/xdna: %w", failure(err))
	}
	d, err := newDevice(drv, o)
	if err != nil {
		return nil, errors.Join(err, drv.close())
	}
	return d, nil
}

// newDevice returns a device that uses drv. The device owns drv if there is no error.
func newDevice(drv driver, o Options) (*Device, error) {
	if o.Contexts == 0 {
		o.Contexts = defaultContexts
	}
	if o.Contexts < 1 {
		return nil, fmt.Errorf("npu/xdna: Options.Contexts is %d: want 1 or more, or 0 for %d",
			o.Contexts, defaultContexts)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	artefacts := &Artefacts{}
	if o.Artefacts != "" {
		var err error
		if artefacts, err = ReadArtefacts(o.Artefacts); err != nil {
			return nil, err
		}
		o.Log.Info("artefacts", "folders", artefacts.Dirs, "programs", len(artefacts.Names()),
			"toolchain", artefacts.Toolchain)
	}
	lock, err := newFileLock(o.Lock)
	if err != nil {
		return nil, err
	}
	host, err := cpu.Open(&cpu.Options{Threads: o.Threads, Kernels: o.Kernels})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("npu/xdna: %w", err), lock.close())
	}
	d := &Device{
		drv: drv,
		info: npu.Info{
			Name:    fmt.Sprintf("%s (host: %s)", drv.name(), host.Info().Name),
			Kind:    "xdna",
			Array:   "xdna2",
			InPlace: []dtype.Type{dtype.BF16},
			Threads: host.Info().Threads,
		},
		host:      host,
		log:       o.Log,
		artefacts: artefacts,
		compile:   o.Compile,
		lock:      lock,
		sem:       make(chan struct{}, 1),
		contexts:  contexts{limit: o.Contexts, log: o.Log},
		configs:   map[string]*loaded{},
	}
	d.scratch.d, d.weights.d = d, d
	d.weights.slabs.drv, d.weights.byKey = drv, map[string]*shared{}
	return d, nil
}

// Info returns the device's description.
func (d *Device) Info() npu.Info { return d.info }

// Host returns the software device for the host steps of a plan. Its programs use this device's
// buffers through [npu.HostBuffer]. It is closed with this device.
func (d *Device) Host() npu.Device { return d.host }

// Artefacts returns the compiled programs that the device was opened with.
func (d *Device) Artefacts() *Artefacts { return d.artefacts }

// checkOpen returns an error if ctx is done or the device is closed.
func (d *Device) checkOpen(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("npu/xdna: %w", err)
	}
	if d.closed.Load() {
		return fmt.Errorf("npu/xdna: %w", npu.ErrClosed)
	}
	return nil
}

// acquire acquires d.sem. It returns an error if ctx is done or the device is closed.
func (d *Device) acquire(ctx context.Context) error {
	if err := d.checkOpen(ctx); err != nil {
		return err
	}
	select {
	case d.sem <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("npu/xdna: %w", ctx.Err())
	}
	if d.closed.Load() {
		d.release()
		return fmt.Errorf("npu/xdna: %w", npu.ErrClosed)
	}
	return nil
}

func (d *Device) release() { <-d.sem }

// waitIdle waits for commands of a canceled Submit, which may still write to buffers. The kernel
// driver stops a program without progress within seconds.
func (d *Device) waitIdle() {
	if f := d.inFlight.Load(); f != nil {
		<-*f
	}
}

// Close waits for a running Submit and closes the NPU. Buffers must be closed separately.
func (d *Device) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	d.sem <- struct{}{}
	defer d.release()
	errs := []error{d.contexts.dropAll()}
	errs = append(errs, d.scratch.close())
	d.mu.Lock()
	for _, l := range d.configs {
		errs = append(errs, l.close())
	}
	clear(d.configs)
	d.mu.Unlock()
	errs = append(errs, d.lock.close(), d.host.Close(), d.drv.close())
	return errors.Join(errs...)
}
