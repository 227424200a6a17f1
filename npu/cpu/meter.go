package cpu

import (
	"context"
	"fmt"
	"time"

	"github.com/npukit/npukit/npu"
)

// Meter measures the peak bandwidth and throughput of a device's threads and kernels: the roofline
// to compare a model's speed with. It keeps the memory that it reads, because the limits of a
// machine that shares its host change within seconds: compare a speed with limits measured just
// before and just after it. Its methods are safe for concurrent use.
type Meter struct {
	dev    *Device
	mem    memory
	closed bool // guarded by the device's turn
}

// Limits are the peak rates of all threads together.
type Limits struct {
	// of memory in no cache: the limit for decode
	ReadBandwidth float64 `json:"read_bandwidth_bytes_per_s"`
	// of products of BF16 with BF16 from the L1 cache: the limit for prefill
	PeakFLOPS float64 `json:"peak_flops_per_s"`
}

// meterBytes is the memory that is read: more than a program's share of any known cache.
const meterBytes = 512 << 20

// meterResults has one float32 per MiB that is read, so that no compiler removes the reads.
const meterResults = 4 * (meterBytes >> 20)

// NewMeter allocates the memory that a meter reads. The error wraps npu.ErrMemory if there is too
// little.
func (d *Device) NewMeter() (*Meter, error) {
	mem, err := newMemory(meterBytes + meterResults)
	if err != nil {
		return nil, err
	}
	mem.inHugePages() // as the weights
	for i := 0; i < meterBytes; i += 4096 {
		mem.m[i] = 1 // a page of its own, not the shared zero page
	}
	return &Meter{dev: d, mem: mem}, nil
}

// Bytes returns the memory that the meter holds, all of it resident.
func (m *Meter) Bytes() int64 { return meterBytes + meterResults }

// Measure measures the limits as they are now, after any running Submit. It reads 1.5 GB and
// computes for about 25 ms.
func (m *Meter) Measure(ctx context.Context) (l Limits, err error) {
	d := m.dev
	if err := d.lock(ctx); err != nil {
		return Limits{}, err
	}
	defer d.unlock()
	if m.closed {
		return Limits{}, fmt.Errorf("npu/cpu: the meter: %w", npu.ErrClosed)
	}
	flag, stop := d.watch(ctx)
	defer stop()
	read, results := m.mem.m[:meterBytes], m.mem.m[meterBytes:]
	if l.ReadBandwidth, err = d.engine.ReadBandwidth(read, results, flag); err == nil && ctx.Err() == nil {
		l.PeakFLOPS, err = d.engine.Peak(5*time.Millisecond, 5)
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("npu/cpu: %w", ctx.Err())
	}
	if err != nil {
		return Limits{}, err
	}
	return l, nil
}

// Close releases the memory.
func (m *Meter) Close() error {
	m.dev.turn <- struct{}{}
	defer m.dev.unlock()
	if !m.closed {
		m.closed = true
		m.mem.free()
	}
	return nil
}
