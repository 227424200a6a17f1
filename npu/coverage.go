package npu

import (
	"slices"
	"sort"
)

// coverage tracks which elements of each argument launches have written.
type coverage struct {
	p    *Program
	args []pieces
}

// pieces are the written parts of one argument.
type pieces struct {
	spans  []span          // in ascending order, neither overlapping nor adjacent
	gapped map[Matrix]bool // views whose rows are not contiguous
}

type span struct{ from, to int } // elements; of one row if the number of rows is open

// newCoverage returns the coverage of the first n launches.
func newCoverage(p *Program, n int) *coverage {
	c := &coverage{p, make([]pieces, len(p.Args))}
	for i := range n {
		c.add(i)
	}
	return c
}

// add records the elements that launch i writes.
func (c *coverage) add(i int) {
	l := &c.p.Launches[i]
	if l.Op == nil {
		return
	}
	for j, operand := range l.Op.Operands() {
		if !operand.Write || j >= len(l.Args) || l.Args[j].Arg < 0 || l.Args[j].Arg >= len(c.args) {
			continue
		}
		a := &c.args[l.Args[j].Arg]
		m := c.p.matrix(l.Args[j])
		if m.dense() {
			a.join(span{m.Offset, m.end()})
			continue
		}
		if a.gapped == nil {
			a.gapped = map[Matrix]bool{}
		}
		a.gapped[m] = true
	}
}

// join adds a span and merges it with those that it touches.
func (a *pieces) join(s span) {
	i := sort.Search(len(a.spans), func(i int) bool { return a.spans[i].to >= s.from })
	j := i
	for ; j < len(a.spans) && a.spans[j].from <= s.to; j++ {
		s.from, s.to = min(s.from, a.spans[j].from), max(s.to, a.spans[j].to)
	}
	a.spans = slices.Replace(a.spans, i, j, s)
}

// covers reports whether all of v has been written: the same view by one launch, or its whole range
// by views without gaps.
func (c *coverage) covers(v View) bool {
	a, m := &c.args[v.Arg], c.p.matrix(v)
	if a.gapped[m] {
		return true
	}
	i := sort.Search(len(a.spans), func(i int) bool { return a.spans[i].to > m.Offset })
	return i < len(a.spans) && a.spans[i].from <= m.Offset && a.spans[i].to >= m.end()
}
