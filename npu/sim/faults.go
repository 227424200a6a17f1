package sim

import (
	"fmt"
	"math/rand/v2"
	"sync"
)

// Faults are mishaps to be played, so that what is built on a device can be tested against them. Each is a probability between 0 and 1. The
// same seed and the same calls give the same mishaps.
type Faults struct {
	Seed      uint64
	Timeout   float64 // of a run: it does not end, and its outputs are undefined: [npu.ErrTimeout]
	Lost      float64 // of a run: the context is gone, and every program loaded with it: [npu.ErrDeviceLost]
	NoContext float64 // of a run whose program needs a hardware context: other processes have them all: [npu.ErrNoContext]
	Refuse    float64 // of an Alloc: [npu.ErrMemory]
	Flip      float64 // of a run: one bit of one of its outputs is wrong, and nothing says so
}

// faults plays them.
type faults struct {
	f  Faults
	mu *sync.Mutex
	r  *rand.Rand
}

func (f *Faults) start() (faults, error) {
	if f == nil {
		return faults{}, nil
	}
	for name, p := range map[string]float64{"Timeout": f.Timeout, "Lost": f.Lost, "NoContext": f.NoContext, "Refuse": f.Refuse, "Flip": f.Flip} {
		if !(p >= 0 && p <= 1) {
			return faults{}, fmt.Errorf("npu/sim: Faults.%s is %g, want a probability", name, p)
		}
	}
	return faults{*f, new(sync.Mutex), rand.New(rand.NewPCG(f.Seed, 0))}, nil
}

// happens throws a coin.
func (f *faults) happens(p float64) bool {
	if p == 0 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.r.Float64() < p
}

func (f *faults) refuse() bool { return f.happens(f.f.Refuse) }

// flip turns one bit of one of the outputs.
func (f *faults) flip(outputs [][]byte) {
	if len(outputs) == 0 || !f.happens(f.f.Flip) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b := outputs[f.r.IntN(len(outputs))]
	bit := f.r.IntN(8 * len(b))
	b[bit/8] ^= 1 << (bit % 8)
}
