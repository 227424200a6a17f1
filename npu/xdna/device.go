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

// Options configures Open. The zero value, and nil, mean the defaults.
type Options struct {
	Artefacts string    // folder of compiled programs, see [ReadArtefacts]; "" for the one that $NPUKIT_ARTEFACTS names, or none
	Compile   *Compiler // of programs that the folder does not have; nil for none: such programs are refused

	Address  string       // of the NPU on the PCI bus, "0000:c5:00.1"; "" for the first
	Contexts int          // hardware contexts alive at once; 0 for 8
	Lock     string       // file that is locked while programs run; "" for npu.lock in the folder for temporary files, which MLIR-AIR's programs take
	Threads  int          // of the host's device, see package cpu; 0 for all cores
	Kernels  string       // of the host's device, see package cpu; "" for its default
	Log      *slog.Logger // of what is worth knowing and no error: tools that made the artefacts, lost contexts; nil for none
}

// defaultContexts is how many hardware contexts the device keeps. The driver has 16 to 32 for all processes, and a model's phase has at
// most eight programs.
const defaultContexts = 8

// Device is an NPU. Its methods are safe for concurrent use; Submits are executed one after the other.
type Device struct {
	drv  driver
	info npu.Info
	host *cpu.Device
	log  *slog.Logger

	artefacts *Artefacts
	compile   *Compiler
	lock      *fileLock

	// turn holds a token while a Submit or the closing of something is at work. A channel, because waiting for it must obey a context. A
	// Submit that was cancelled leaves it with whoever waits for the device to be done; flight is then closed when it is.
	turn   chan struct{}
	flight atomic.Pointer[chan struct{}]
	closed atomic.Bool

	// Used by the holder of turn.
	contexts contexts
	scratch  []scratch // that programs share, by rank
	key      []byte    // reused

	next atomic.Uint64 // number of the next object

	mu      sync.Mutex
	copies  bool // the driver cannot map memory of the process: buffers have memory of their own on the device's side
	weights map[string]*shared
	slab    *slab
	configs map[string]*loaded // binaries by path
}

var _ npu.Hosted = (*Device)(nil)

// Open opens the NPU. Without XRT in the program the error is [xrt.ErrUnavailable]; without an NPU, permission or locked memory it is
// another of package xrt's, each with advice; `npukit doctor` says more. A folder of artefacts that cannot be read is an error; which
// programs it has shows in Load.
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

// newDevice makes a device over a driver, which it owns if there is no error.
func newDevice(drv driver, o Options) (*Device, error) {
	if o.Contexts == 0 {
		o.Contexts = defaultContexts
	}
	if o.Contexts < 1 {
		return nil, fmt.Errorf("npu/xdna: Options.Contexts is %d, want 1 or more, or 0 for %d", o.Contexts, defaultContexts)
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
		o.Log.Info("artefacts", "folders", artefacts.Dirs, "programs", len(artefacts.Names()), "toolchain", artefacts.Toolchain)
	}
	lock, err := newFileLock(o.Lock)
	if err != nil {
		return nil, err
	}
	host, err := cpu.Open(&cpu.Options{Threads: o.Threads, Kernels: o.Kernels})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("npu/xdna: %w", err), lock.close())
	}
	return &Device{
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
		turn:      make(chan struct{}, 1),
		contexts:  contexts{limit: o.Contexts, log: o.Log},
		weights:   map[string]*shared{},
		configs:   map[string]*loaded{},
	}, nil
}

// Info describes the device.
func (d *Device) Info() npu.Info { return d.info }

// Host is the software device for a plan's steps on the host. Its programs take this device's buffers through [npu.HostBuffer]. It is
// closed with this device.
func (d *Device) Host() npu.Device { return d.host }

// Artefacts are the compiled programs that the device was opened with.
func (d *Device) Artefacts() *Artefacts { return d.artefacts }

// usable reports a context that has ended and a device that is closed.
func (d *Device) usable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("npu/xdna: %w", err)
	}
	if d.closed.Load() {
		return fmt.Errorf("npu/xdna: %w", npu.ErrClosed)
	}
	return nil
}

// enter takes the device's turn, or gives up when ctx is done or the device is closed.
func (d *Device) enter(ctx context.Context) error {
	if err := d.usable(ctx); err != nil {
		return err
	}
	select {
	case d.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("npu/xdna: %w", ctx.Err())
	}
	if d.closed.Load() {
		d.leave()
		return fmt.Errorf("npu/xdna: %w", npu.ErrClosed)
	}
	return nil
}

func (d *Device) leave() { <-d.turn }

// landed waits for what a cancelled Submit left on the device, whose programs may still write. The kernel driver ends a program that makes
// no progress within seconds.
func (d *Device) landed() {
	if f := d.flight.Load(); f != nil {
		<-*f
	}
}

// Close waits for a running Submit and gives the NPU back. Buffers stay as they are until they are closed themselves.
func (d *Device) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	d.turn <- struct{}{}
	defer d.leave()
	errs := []error{d.contexts.dropAll()}
	for i := range d.scratch {
		errs = append(errs, d.dropScratch(&d.scratch[i]))
	}
	d.mu.Lock()
	for _, l := range d.configs {
		errs = append(errs, l.close())
	}
	clear(d.configs)
	d.mu.Unlock()
	errs = append(errs, d.lock.close(), d.host.Close(), d.drv.close())
	return errors.Join(errs...)
}
