package oracle

import (
	"context"
)

// State is the KV cache of a sequence, with scratch buffers. It is not safe for concurrent use.
type State struct {
	m        *Model
	pos      int // positions in the cache
	capacity int // positions that the cache can hold
	k, v     [][]float32
	// k[layer], v[layer] [kvHeads, capacity, headDim]

	buffers map[string][]float32 // activations, reused across passes
}

// NewState returns an empty state. Its memory grows with the sequence.
func (m *Model) NewState() *State {
	n := len(m.layers)
	return &State{m: m, k: make([][]float32, n), v: make([][]float32, n), buffers: map[string][]float32{}}
}

// Score empties the state, runs ids through the model and calls emit with the logits [vocab] at
// each position, which predict the next token. The logits are valid during the call only. Use it
// for teacher-forced comparisons and log-likelihoods. If it returns an error, the state is empty.
func (s *State) Score(ctx context.Context, ids []int32, emit func(pos int, logits []float32) error) error {
	s.pos = 0
	return s.m.Forward(ctx, s, ids, nil, emit)
}

// Step appends one id and returns the logits [vocab] after it. They are valid until the state's
// next pass.
func (s *State) Step(ctx context.Context, id int32) (logits []float32, err error) {
	err = s.m.Forward(ctx, s, []int32{id}, nil, func(_ int, row []float32) error {
		logits = row
		return nil
	})
	return logits, err
}

// reserve grows the cache to hold at least the given number of positions.
func (s *State) reserve(positions int) {
	if positions <= s.capacity {
		return
	}
	c := s.m.cfg
	capacity := min(max(positions, 2*s.capacity), c.Context)
	grow := func(old []float32) []float32 {
		cache := make([]float32, c.KVHeads*capacity*c.HeadDim)
		for h := range c.KVHeads {
			copy(cache[h*capacity*c.HeadDim:], old[h*s.capacity*c.HeadDim:][:s.pos*c.HeadDim])
		}
		return cache
	}
	for l := range s.k {
		s.k[l], s.v[l] = grow(s.k[l]), grow(s.v[l])
	}
	s.capacity = capacity
}

// buffer returns n elements of undefined content. It returns the same memory for the same name.
func (s *State) buffer(name string, n int) []float32 {
	if len(s.buffers[name]) < n {
		s.buffers[name] = make([]float32, n)
	}
	return s.buffers[name][:n]
}
