// Package contexts decides which programs hold one of the NPU's hardware contexts. Packages npu/sim
// and model/plan share its policy.
package contexts

import "slices"

// LRU is the set of programs that hold a hardware context: at most a fixed number, of which it
// evicts the least recently used. Running an evicted program reopens its context, which costs
// xdna2.Host.ContextLoad; buffers outlive contexts.
//
// The array of package xdna2 has a limit of 8: that leaves room for another process and holds the
// programs of one phase of any published model. The driver of this family has 16 contexts for all
// processes, and processes have been reported to fail at about 10 (rule R-ELF-6).
type LRU[P comparable] struct {
	limit int
	alive []P // in order of last use
}

// New returns an empty set of at most limit contexts. A limit below one counts as one.
func New[P comparable](limit int) *LRU[P] { return &LRU[P]{limit: max(1, limit)} }

// Use marks p as running now. It returns true if a context had to be opened for it.
func (c *LRU[P]) Use(p P) (opened bool) {
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
func (c *LRU[P]) Alive(p P) bool { return slices.Contains(c.alive, p) }

// Drop closes the context of p, if it holds one.
func (c *LRU[P]) Drop(p P) {
	c.alive = slices.DeleteFunc(c.alive, func(q P) bool { return q == p })
}

// Clear closes all contexts.
func (c *LRU[P]) Clear() { c.alive = nil }
