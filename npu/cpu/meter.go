package cpu

import (
	"context"
	"fmt"
	"time"

	"github.com/npukit/npukit/npu"
)

// Meter measures what the machine can do at most with a device's threads and kernels: the limits to look at a model's speed beside. It reads memory of its own, which it keeps from
// one measurement to the next, because a machine that shares its host with others changes within seconds: a speed is best compared with limits measured just before it and just
// behind it. Its methods are safe for concurrent use.
type Meter struct {
	dev    *Device
	mem    memory
	closed bool // read and written by the holder of the device's turn
}

// Limits are what all threads together can do in a second.
type Limits struct {
	ReadBandwidth float64 `json:"read_bandwidth_bytes_per_s"` // of memory that is in no cache: the limit for decoding
	PeakFLOPS     float64 `json:"peak_flops_per_s"`           // floating-point operations of products of BF16 with BF16, from the nearest cache: the limit for long prompts
}

// meterBytes is the memory that is read: more than the caches of any machine that npukit has met hold for one program.
const meterBytes = 512 << 20

// meterResults is room for one FP32 of each MiB that is read, so that no compiler leaves the reading out.
const meterResults = 4 * (meterBytes >> 20)

// NewMeter takes the memory that a meter reads. An error wraps npu.ErrMemory where there is not so much.
func (d *Device) NewMeter() (*Meter, error) {
	mem, err := newMemory(meterBytes + meterResults)
	if err != nil {
		return nil, err
	}
	mem.inHugePages() // as the weights
	for i := 0; i < meterBytes; i += 4096 {
		mem.m[i] = 1 // a page of its own, not the shared page of zeros
	}
	return &Meter{dev: d, mem: mem}, nil
}

// Bytes is the memory that the meter holds, all of it resident.
func (m *Meter) Bytes() int64 { return meterBytes + meterResults }

// Measure measures the limits as they are now. It reads 1.5 GB and computes for some 25 ms, after a Submit that is executing.
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
	if l.ReadBandwidth, err = d.engine.ReadBandwidth(m.mem.m[:meterBytes], m.mem.m[meterBytes:], flag); err == nil && ctx.Err() == nil {
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

// Close gives the memory back.
func (m *Meter) Close() error {
	m.dev.turn <- struct{}{}
	defer m.dev.unlock()
	if !m.closed {
		m.closed = true
		m.mem.free()
	}
	return nil
}
