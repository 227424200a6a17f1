package defect

import (
	"github.com/npukit/npukit/internal/fault"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// Kernel is a launch with its memory, for a computation on the host.
type Kernel struct {
	Op       op.Op
	Operands []fault.Matrix // in the op's order; without rows if the operand is a cache
	Segments []Segment
}

// Segment is one session's rows.
type Segment struct {
	Row, Rows int // first row, and how many
	Pos       int // position of the first
	// By operand; without rows if the operand is no cache. The rows of one head follow those of
	// the other.
	Caches []fault.Matrix
}

// newKernel returns a launch with its memory.
func newKernel(s *fault.Step) *Kernel {
	o := s.Launch.Op
	k := &Kernel{Op: o}
	n := len(o.Operands())
	for i := range n {
		k.Operands = append(k.Operands, s.Operand(i))
	}
	// Attention without a cache sees every row of its operands, padding included.
	if o, ok := o.(op.Attention); ok && !o.Cached && len(s.Segments) < 2 {
		k.Segments = []Segment{{Rows: s.Rows(o.Rows)}}
		return k
	}
	row := 0
	for i, seg := range s.Segments {
		own := Segment{Row: row, Rows: seg.Rows, Pos: seg.Pos}
		for j := range n {
			own.Caches = append(own.Caches, s.Cache(j, i))
		}
		k.Segments = append(k.Segments, own)
		row += seg.Rows
	}
	return k
}

// sync makes the output of the device visible to the host, or the host's results to the device.
func (k *Kernel) sync(dir npu.Direction) error {
	for i, o := range k.Op.Operands() {
		if dir == npu.ToDevice && !o.Write {
			continue
		}
		all := []fault.Matrix{k.Operands[i]}
		for _, s := range k.Segments {
			if len(s.Caches) > 0 {
				all = append(all, s.Caches[i])
			}
		}
		for _, m := range all {
			if m.Rows == 0 {
				continue
			}
			if err := m.Sync(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// in returns row r of operand i. An operand of one row is the same for all.
func (k *Kernel) in(i, r int) []float32 {
	m := k.Operands[i]
	return m.Row(min(r, m.Rows-1))
}

// out returns the operand that is written, the last one.
func (k *Kernel) out() fault.Matrix { return k.Operands[len(k.Operands)-1] }

// rows computes the output row by row.
func (k *Kernel) rows(f func(r int) []float32) {
	y := k.out()
	for r := range y.Rows {
		y.SetRow(r, f(r))
	}
}
