package xdna2

import "slices"

// Contexts is which programs hold a hardware context: at most so many, and those go first that have not been used for longest. A program
// whose context is gone is loaded again when a run needs it, which costs Host.ContextLoad; buffers outlive contexts. Packages npu/xdna and
// npu/sim do so, and the clock prices it.
//
// How many: the driver of this family has 16 for all processes together. Published deployments have 13 alive, published notes report
// processes that failed at about 10 (rule R-ELF-6). Ours keeps [Array].Contexts, 8, which leaves room for another process, and holds the
// programs of one phase of any published model.
type Contexts[P comparable] struct {
	limit int
	alive []P // by last use, the latest at the end
}

// NewContexts is an empty set of at most limit contexts; less than one counts as one.
func NewContexts[P comparable](limit int) *Contexts[P] { return &Contexts[P]{limit: max(1, limit)} }

// Use says that a run of p comes now, and whether a context had to be opened for it.
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

// Drop gives the context of p back, if it holds one.
func (c *Contexts[P]) Drop(p P) {
	c.alive = slices.DeleteFunc(c.alive, func(q P) bool { return q == p })
}

// Clear gives all contexts back.
func (c *Contexts[P]) Clear() { c.alive = nil }

// CheckContexts reports more programs than the array's contexts hold at once. They run all the same, but while they take turns contexts
// are opened again and again: what is one phase's should fit. A nil array means NPU2().
func CheckContexts(programs int, a *Array) error {
	a = a.orNPU2()
	v := atMost(programs, a.Contexts, "contexts", "programs that take turns")
	if !v.failed {
		return nil
	}
	e := v.asError("R-ELF-6")
	e.Advice = []string{"merge programs until they are no more", "run them a phase at a time: contexts are opened again between phases, and buffers outlive them"}
	return e
}
