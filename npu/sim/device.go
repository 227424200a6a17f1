package sim

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/xdna2"
)

// Options configures Open. The zero value, and nil, mean the defaults.
type Options struct {
	Threads  int     // that compute, on this machine; 0 means all cores that the process may use
	Kernels  string  // of npu/cpu, see there; "" means its default
	Host     string  // whose costs between dispatches the clock counts: a name that [xdna2.HostProfile] knows, "" for "npukit"
	Contexts int     // hardware contexts alive at once; 0 means as many as the host's profile keeps: 8 for "npukit"
	Memory   int     // bytes that buffers and weights may have together; 0 means no limit but this machine's
	Debug    bool    // report missing syncs, see [CoherencyError]; costs a comparison of every input
	Timing   bool    // only the clock runs: nothing is computed, and outputs keep what they held
	Faults   *Faults // to be played; nil for none
}

// Device is a virtual XDNA 2. Its methods are safe for concurrent use; Submits are executed one after the other.
type Device struct {
	opts Options
	info npu.Info
	host *cpu.Device

	// turn holds a token while a Submit or the closing of a buffer or the device is at work. A channel, because waiting for it must obey a
	// context.
	turn    chan struct{}
	closed  atomic.Bool
	scratch []npu.Buffer // memory that programs are given for Scratch arguments and between launches, by number; used by the holder of turn
	clock   *clock
	faults  faults

	mu        sync.Mutex
	contexts  *xdna2.Contexts[*executable]
	opened    int // contexts, since the start
	epoch     int // how often the contexts have been lost
	bytes     int // of buffers and weights
	weights   map[*byte]*weight
	converted map[tensorKey]*converted
	helpers   map[helperKey]npu.Executable // programs of npu/cpu for parts of kernels; used by the holder of turn
}

var _ npu.Hosted = (*Device)(nil)

// Open makes a virtual device.
func Open(opts *Options) (*Device, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Contexts < 0 || o.Memory < 0 {
		return nil, fmt.Errorf("npu/sim: Options.Contexts is %d and Memory %d: want 0 for the default, or more", o.Contexts, o.Memory)
	}
	faults, err := o.Faults.start()
	if err != nil {
		return nil, err
	}
	clock, err := newClock(o.Host)
	if err != nil {
		return nil, err
	}
	if o.Contexts == 0 {
		o.Contexts = clock.model.Host.Contexts
	}
	host, err := cpu.Open(&cpu.Options{Threads: o.Threads, Kernels: o.Kernels})
	if err != nil {
		return nil, fmt.Errorf("npu/sim: %w", err)
	}
	o.Threads = host.Info().Threads
	return &Device{
		opts: o,
		info: npu.Info{
			Name:    fmt.Sprintf("virtual XDNA 2 (numbers by %s)", host.Info().Name),
			Kind:    "sim",
			Array:   "xdna2",
			InPlace: []dtype.Type{dtype.BF16},
			Threads: o.Threads,
		},
		host:      host,
		turn:      make(chan struct{}, 1),
		clock:     clock,
		faults:    faults,
		contexts:  xdna2.NewContexts[*executable](o.Contexts),
		weights:   map[*byte]*weight{},
		converted: map[tensorKey]*converted{},
		helpers:   map[helperKey]npu.Executable{},
	}, nil
}

// Info describes the device.
func (d *Device) Info() npu.Info { return d.info }

// Host is the device for a plan's steps on the host: a software device, whose programs work on the host's side of this device's buffers
// (see [npu.HostBuffer]). It is closed with this device.
func (d *Device) Host() npu.Device {
	if d.opts.Debug {
		return watchedHost{d.host}
	}
	return d.host
}

// usable reports a context that has ended and a device that is closed.
func (d *Device) usable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("npu/sim: %w", err)
	}
	if d.closed.Load() {
		return fmt.Errorf("npu/sim: %w", npu.ErrClosed)
	}
	return nil
}

// lock takes the device's turn, or gives up when ctx is done or the device is closed.
func (d *Device) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("npu/sim: %w", err)
	}
	select {
	case d.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("npu/sim: %w", ctx.Err())
	}
	if d.closed.Load() {
		d.unlock()
		return fmt.Errorf("npu/sim: %w", npu.ErrClosed)
	}
	return nil
}

func (d *Device) unlock() { <-d.turn }

// reserve counts a buffer's bytes against Options.Memory.
func (d *Device) reserve(bytes int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.count("Alloc", bytes); err != nil {
		return err
	}
	if d.faults.refuse() {
		d.bytes -= bytes
		return fmt.Errorf("npu/sim: Alloc of %d bytes: %w (a fault that was asked for)", bytes, npu.ErrMemory)
	}
	return nil
}

// count adds bytes that a call wants, where Options.Memory has room for them. The caller holds mu.
func (d *Device) count(call string, bytes int) error {
	if bytes > 0 && d.opts.Memory > 0 && bytes > d.opts.Memory-d.bytes {
		return fmt.Errorf("npu/sim: %s of %d bytes: %w: %d of %d are in use", call, bytes, npu.ErrMemory, d.bytes, d.opts.Memory)
	}
	d.bytes += bytes
	return nil
}

func (d *Device) unreserve(bytes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bytes -= bytes
}

// Clock is the predicted time of everything submitted so far: launches, dispatches and syncs, on the array and between host and array. It
// is a prediction of a model fitted to published measurements, never a measurement.
func (d *Device) Clock() time.Duration { return d.clock.total() }

// Close waits for a running Submit, and closes the host's device. Buffers stay as they are until they are closed themselves.
func (d *Device) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	d.turn <- struct{}{}
	defer d.unlock()
	for _, b := range d.scratch {
		_ = b.Close() // memory of npu/cpu: giving it back does not fail
	}
	d.scratch = nil
	return d.host.Close()
}
