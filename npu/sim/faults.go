package sim

import (
	"fmt"
	"math/rand/v2"
	"sync"
)

// Faults configures fault injection. Each field but Seed is a probability between 0 and 1. The same
// seed and the same calls produce the same faults.
type Faults struct {
	Seed    uint64
	Timeout float64 // of a run: it fails with [npu.ErrTimeout], and its outputs are undefined
	Lost    float64 // of a run: all loaded programs are lost: [npu.ErrDeviceLost]
	// of a run that must open a context: other processes hold them all: [npu.ErrNoContext]
	NoContext float64
	Refuse    float64 // of an Alloc: [npu.ErrMemory]
	Flip      float64 // of a run: one bit of one output is wrong, and no error is returned
}

// faults injects the faults of f.
type faults struct {
	f  Faults
	mu *sync.Mutex
	r  *rand.Rand
}

func (f *Faults) start() (faults, error) {
	if f == nil {
		return faults{}, nil
	}
	for name, p := range map[string]float64{"Timeout": f.Timeout, "Lost": f.Lost,
		"NoContext": f.NoContext, "Refuse": f.Refuse, "Flip": f.Flip} {
		if !(p >= 0 && p <= 1) {
			return faults{}, fmt.Errorf("npu/sim: Faults.%s is %g: want a probability between 0 "+
				"and 1", name, p)
		}
	}
	return faults{*f, new(sync.Mutex), rand.New(rand.NewPCG(f.Seed, 0))}, nil
}

// happens reports true with probability p.
func (f *faults) happens(p float64) bool {
	if p == 0 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.r.Float64() < p
}

func (f *faults) refuse() bool { return f.happens(f.f.Refuse) }

// flip inverts one random bit of one output.
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
