package sim

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/npukit/npukit/internal/contexts"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/dtype"
)

// Options configures Open. The zero value and nil select the defaults.
type Options struct {
	Threads  int     // worker threads; 0 means all cores available to the process
	Kernels  string  // kernel set, see cpu.Options; "" means its default
	Host     string  // name of an [xdna2.HostProfile] for the clock; "" means "npukit"
	Contexts int     // maximum open hardware contexts; 0 means the host profile's limit: 8 for "npukit"
	Memory   int     // maximum bytes of buffers and weights together; 0 means no limit
	Debug    bool    // report missing syncs, see [CoherencyError]; costs a comparison of every input
	Timing   bool    // advance the clock only: nothing is computed, and outputs are not written
	Faults   *Faults // faults to inject; nil for none
}

// Device is a virtual XDNA 2. Its methods are safe for concurrent use. Concurrent calls to Submit
// are executed one at a time.
type Device struct {
	opts Options
	info npu.Info
	host *cpu.Device

	// sem is held by a running Submit and while a buffer or the device is closed. It is a channel
	// because lock must return when its context is done.
	sem     chan struct{}
	closed  atomic.Bool
	scratch []npu.Buffer // memory for temporary slots, by index; guarded by sem
	clock   *clock
	faults  faults

	mu       sync.Mutex
	contexts *contexts.LRU[*executable]
	opened   int // contexts opened since Open
	epoch    int // incremented when all contexts are lost
	bytes    int // of buffers and weights
	weights  weights
	helpers  map[helperKey]npu.Executable // npu/cpu programs for parts of kernels; guarded by sem
}

var _ npu.Hosted = (*Device)(nil)

// Open returns a virtual device. It returns an error if an option is out of range.
func Open(opts *Options) (*Device, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Contexts < 0 || o.Memory < 0 {
		return nil, fmt.Errorf("npu/sim: Options.Contexts is %d and Memory %d: want 0 (default) or "+
			"more", o.Contexts, o.Memory)
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
	d := &Device{
		opts: o,
		info: npu.Info{
			Name:    fmt.Sprintf("virtual XDNA 2 (numbers by %s)", host.Info().Name),
			Kind:    "sim",
			Array:   "xdna2",
			InPlace: []dtype.Type{dtype.BF16},
			Threads: o.Threads,
		},
		host:     host,
		sem:      make(chan struct{}, 1),
		clock:    clock,
		faults:   faults,
		contexts: contexts.New[*executable](o.Contexts),
		helpers:  map[helperKey]npu.Executable{},
	}
	d.weights = weights{d, map[*byte]*weight{}, map[tensorKey]*converted{}}
	return d, nil
}

// Info returns the device's description.
func (d *Device) Info() npu.Info { return d.info }

// Host returns the device for the host steps of a plan: a software device whose programs use the
// host side of this device's buffers (see [npu.HostBuffer]). It is closed with this device.
func (d *Device) Host() npu.Device {
	if d.opts.Debug {
		return debugHost{d.host}
	}
	return d.host
}

// checkOpen returns an error if ctx is done or the device is closed.
func (d *Device) checkOpen(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("npu/sim: %w", err)
	}
	if d.closed.Load() {
		return fmt.Errorf("npu/sim: %w", npu.ErrClosed)
	}
	return nil
}

// lock acquires d.sem. It returns an error if ctx is done or the device is closed.
func (d *Device) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("npu/sim: %w", err)
	}
	select {
	case d.sem <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("npu/sim: %w", ctx.Err())
	}
	if d.closed.Load() {
		d.unlock()
		return fmt.Errorf("npu/sim: %w", npu.ErrClosed)
	}
	return nil
}

func (d *Device) unlock() { <-d.sem }

// reserve counts bytes against Options.Memory. It returns [npu.ErrMemory] if the limit is exceeded.
func (d *Device) reserve(bytes int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.count("Alloc", bytes); err != nil {
		return err
	}
	if d.faults.refuse() {
		d.bytes -= bytes
		return fmt.Errorf("npu/sim: Alloc of %d bytes: %w (injected fault)", bytes, npu.ErrMemory)
	}
	return nil
}

// count adds bytes to the memory in use. It returns [npu.ErrMemory] if that exceeds Options.Memory.
// call is the operation named in the error. The caller must hold d.mu.
func (d *Device) count(call string, bytes int) error {
	if bytes > 0 && d.opts.Memory > 0 && bytes > d.opts.Memory-d.bytes {
		return fmt.Errorf("npu/sim: %s of %d bytes: %w: %d of %d are in use", call, bytes,
			npu.ErrMemory, d.bytes, d.opts.Memory)
	}
	d.bytes += bytes
	return nil
}

func (d *Device) unreserve(bytes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bytes -= bytes
}

// Clock returns the predicted time of everything submitted so far: contexts, dispatches, launches
// and syncs. It comes from a cost model fitted to published measurements and is never a
// measurement.
func (d *Device) Clock() time.Duration { return d.clock.total() }

// Close waits for a running Submit and closes the device and its host device. Buffers must be
// closed separately.
func (d *Device) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	d.sem <- struct{}{}
	defer d.unlock()
	for _, b := range d.scratch {
		_ = b.Close() // closing npu/cpu memory does not fail
	}
	d.scratch = nil
	return d.host.Close()
}
