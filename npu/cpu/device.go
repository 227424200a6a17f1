package cpu

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
)

// Options configures Open. The zero value, and nil, mean the defaults.
type Options struct {
	// threads that compute; 0 means all cores that the process may use: see the package comment
	Threads int
	Kernels string // a name of KernelNames; "" means $NPUKIT_KERNELS, else the fastest, found by timing
	// read BF16 weights in place instead of compressing them: opens at once, decodes slower
	InPlace bool
}

// defaultThreads is the meaning of Options.Threads 0. GOMAXPROCS includes a container's quota,
// which runtime.NumCPU does not. It is read before main can raise it to leave room for goroutines,
// which the next device would count as a core.
var defaultThreads = min(runtime.NumCPU(), runtime.GOMAXPROCS(0), maxThreads)

// maxThreads bounds Options.Threads.
const maxThreads = 1024

// Device is the software device. Its methods are safe for concurrent use; Submits run one after the
// other.
type Device struct {
	info   npu.Info
	engine engine

	// turn holds a token while a Submit or a measurement runs or a buffer or the device is closed.
	// It is a channel because waiting for it must obey a context.
	turn   chan struct{}
	closed atomic.Bool
	build  builder // used by the holder of turn
	cancel memory  // one uint32 that engines watch

	mu     sync.Mutex
	consts map[string]*shared // weights by layout and tensors

	weights weightStore // memory of repacked and compressed weights
}

var _ npu.Device = (*Device)(nil)

// Open starts the device. It returns an error if Options.Kernels or the environment variable
// NPUKIT_KERNELS names kernels that this machine cannot execute.
func Open(opts *Options) (*Device, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Threads == 0 {
		o.Threads = defaultThreads
	}
	if o.Threads < 1 || o.Threads > maxThreads {
		return nil, fmt.Errorf("npu/cpu: Options.Threads is %d, want 1 to %d, or 0 for all cores", o.Threads,
			maxThreads)
	}
	cancel, err := newMemory(64)
	if err != nil {
		return nil, err
	}
	e, err := openEngine(o.Kernels, o.Threads)
	if err != nil {
		cancel.free()
		return nil, err
	}
	threads := "threads"
	if o.Threads == 1 {
		threads = "thread"
	}
	d := &Device{
		info: npu.Info{
			Name:     fmt.Sprintf("cpu (%d %s, %s)", o.Threads, threads, e.Name()),
			Kind:     "cpu",
			AnyRows:  true,
			InPlace:  []dtype.Type{dtype.F32, dtype.F16},
			Repacked: groupedTypes(),
			Threads:  o.Threads,
			FewRows:  fewRows(e),
		},
		engine: e,
		turn:   make(chan struct{}, 1),
		cancel: cancel,
		consts: map[string]*shared{},
	}
	if roundsQuantized(e) {
		d.info.Rounded = d.info.Repacked
	}
	if e, ok := e.(bf12Engine); ok && !o.InPlace && e.UseBF12() {
		d.info.Compressed = []dtype.Type{dtype.BF16}
	} else {
		d.info.InPlace = append(d.info.InPlace, dtype.BF16)
	}
	return d, nil
}

// Info describes the device.
func (d *Device) Info() npu.Info { return d.info }

// Kernels returns the name of the kernels in use, a value of Options.Kernels.
func (d *Device) Kernels() string { return d.engine.Name() }

// lock acquires the device's turn. It returns an error if ctx is done or the device is closed.
func (d *Device) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("npu/cpu: %w", err)
	}
	select {
	case d.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("npu/cpu: %w", ctx.Err())
	}
	if d.closed.Load() {
		d.unlock()
		return fmt.Errorf("npu/cpu: %w", npu.ErrClosed)
	}
	return nil
}

func (d *Device) unlock() { <-d.turn }

// watch returns a flag that becomes 1 when ctx is done. The caller must call stop before it
// releases the turn.
func (d *Device) watch(ctx context.Context) (flag *uint32, stop func()) {
	flag = (*uint32)(d.cancel.ptr())
	atomic.StoreUint32(flag, 0)
	if ctx.Done() == nil {
		return flag, func() {}
	}
	stored := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		atomic.StoreUint32(flag, 1)
		close(stored)
	})
	return flag, func() {
		if !cancel() {
			<-stored // otherwise it might cancel the next Submit
		}
	}
}

// Close waits for a running Submit and stops the threads. Buffers stay valid until they are closed.
func (d *Device) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	d.turn <- struct{}{}
	defer d.unlock()
	d.engine.Close()
	d.build.free()
	d.cancel.free()
	return nil
}
