package xdna2

import "slices"

// Contexts tracks which programs hold a hardware context. It holds at most a fixed number and
// evicts the least recently used. Running an evicted program reopens its context, which costs
// Host.ContextLoad; buffers outlive contexts. Packages npu/xdna and npu/sim and the clock share
// this policy.
//
// [Array].Contexts is 8: it leaves room for another process and holds the programs of one phase of
// any published model. The driver of this family has 16 contexts for all processes, and processes
// have been reported to fail at about 10 (rule R-ELF-6).
type Contexts[P comparable] struct {
	limit int
	alive []P // in order of last use
}

// NewContexts returns an empty set of at most limit contexts. A limit below one counts as one.
func NewContexts[P comparable](limit int) *Contexts[P] { return &Contexts[P]{limit: max(1, limit)} }

// Use marks p as running now. It returns true if a context had to be opened for it.
func (c *Contexts[P]) Use(p P) (opened bool) {
	i := slices.Index(c.alive, p)
	switch {
	case i >= 0:
		c.alive = slices.Delete(c.alive, i, i+1)
	case len(c.alive) == c.limit:
		c.alive = slices.Delete(c.alive, 0, 1)
	}
	c.alive = append(c.alive, p)
	return i < 0
}

// Alive reports whether p holds a context.
func (c *Contexts[P]) Alive(p P) bool { return slices.Contains(c.alive, p) }

// Drop closes the context of p, if it holds one.
func (c *Contexts[P]) Drop(p P) {
	c.alive = slices.DeleteFunc(c.alive, func(q P) bool { return q == p })
}

// Clear closes all contexts.
func (c *Contexts[P]) Clear() { c.alive = nil }

// CheckContexts returns an error if the array cannot hold contexts for that many programs at once.
// They still run, but contexts are reopened on every turn, so the programs of one phase should fit.
// A nil array means NPU2().
func CheckContexts(programs int, a *Array) error {
	a = a.orNPU2()
	v := atMost(programs, a.Contexts, "contexts", "programs that run in turns")
	if !v.failed {
		return nil
	}
	e := v.asError("R-ELF-6")
	e.Advice = []string{
		"merge programs until they are no more",
		"run them one phase at a time: contexts are reopened between phases, and buffers outlive contexts",
	}
	return e
}
