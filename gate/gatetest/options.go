package gatetest

import (
	"slices"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// Segment is the part of a kernel's rows that belongs to one session.
type Segment struct {
	Rows int // 1 or more
	Pos  int // position of the first row: the number of keys and values before it in the cache
}

// Options configures the test of a kernel. The zero value and nil mean the defaults.
type Options struct {
	Activations dtype.Type // F32 or BF16 (default)
	// Weights is the type of matrices and embeddings; default BF16. A weight that cannot be
	// quantized is FP32 then.
	Weights dtype.Type
	Cache   dtype.Type // of keys and values: F32, F16 or BF16 (default)

	// Types has the type of each operand, in the order of [op.Op.Operands], and overrides the three
	// above.
	Types []dtype.Type

	// Segments are the rows of the run and their positions. By default all rows are one session's
	// at position 0; an op with [op.Rows] gets three.
	Segments []Segment
	Picks    int // for [op.Picks]; default 2, or the number of rows if that is less

	Seed       uint64      // of the operands
	Tolerances Tolerances  // nil means those of [Default]
	Mapping    npu.Mapping // of the launch, for devices that read it
	References *References // caches results of the oracle; nil caches none
}

// role is the purpose of an operand.
type role uint8

const (
	activation role = iota // In: written before each run
	constant               // Const: a weight
	cache                  // State: keys or values
	index                  // In, integers
	result                 // Out
)

// roleOf returns the role of the i-th operand.
func roleOf(o op.Op, i int) role {
	operand := o.Operands()[i]
	switch {
	case slices.Contains(operand.Types, dtype.I32):
		return index
	case slices.Contains(operand.Shape, op.Capacity):
		return cache
	case operand.Write:
		return result
	}
	switch o := o.(type) {
	case op.MatMul, op.Embed, op.RMSNorm:
		if i == 1 {
			return constant
		}
	case op.LayerNorm:
		if i > 0 {
			return constant
		}
	case op.Add:
		if i == 1 && o.Broadcast {
			return constant
		}
	}
	return activation
}

// types returns the types of an op's operands.
func (s *Options) types(o op.Op) ([]dtype.Type, error) {
	operands := o.Operands()
	if s.Types != nil {
		if len(s.Types) != len(operands) {
			return nil, badOption("Types", "%d types, %s has %d operands", len(s.Types), o.Kind(),
				len(operands))
		}
		return s.Types, nil
	}
	or := func(t dtype.Type) dtype.Type {
		if t == dtype.Invalid {
			return dtype.BF16
		}
		return t
	}
	list := make([]dtype.Type, len(operands))
	for i, operand := range operands {
		switch roleOf(o, i) {
		case index:
			list[i] = dtype.I32
		case cache:
			list[i] = or(s.Cache)
		case constant:
			list[i] = or(s.Weights)
			if list[i].Quantized() && !slices.Contains(operand.Types, list[i]) {
				list[i] = dtype.F32
			}
		default:
			list[i] = or(s.Activations)
		}
	}
	return list, nil
}

// defaultRows is the number of rows for an op with open rows: several, and not a power of two.
const defaultRows = 3

// maxRows bounds rows and positions of a test, so that their sums and products cannot overflow.
const maxRows = 1 << 24

// place fills in Segments and Picks and returns the values of the op's symbols. Capacity and Pos
// differ between segments and are zero here.
func (s *Options) place(o op.Op) (op.Size, error) {
	var size op.Size
	rows := rowsOf(o)
	if len(s.Segments) == 0 {
		s.Segments = []Segment{{Rows: rows}}
		if rows < 0 {
			s.Segments[0].Rows = max(defaultRows, s.Picks)
		}
	}
	for i, seg := range s.Segments {
		if seg.Rows < 1 || seg.Pos < 0 || seg.Rows > maxRows || seg.Pos > maxRows || size.Rows > maxRows {
			return size, badOption("Segments", "segment %d has %d rows at position %d: want 1 to %d "+
				"rows, and a position from 0 to that", i, seg.Rows, seg.Pos, maxRows)
		}
		size.Rows += seg.Rows
	}
	if rows > 0 && rows != size.Rows {
		return size, badOption("Segments", "%d rows, %s has %d: use op.Rows in the op, or the same "+
			"number", size.Rows, o.Kind(), rows)
	}
	if s.Picks == 0 {
		s.Picks = min(2, size.Rows)
	}
	if s.Picks < 0 || s.Picks > maxRows {
		return size, badOption("Picks", "is %d, want 1 to %d", s.Picks, maxRows)
	}
	size.Picks = s.Picks
	return size, nil
}

// rowsOf returns the op's number of rows, or [op.Rows] if it is open.
func rowsOf(o op.Op) int {
	rows := op.Rows
	switch o := o.(type) {
	case op.MatMul:
		rows = o.M
	case op.Embed:
		rows = o.Rows
	case op.Pick:
		rows = o.Rows
	case op.Cast:
		rows = o.Rows
	case op.RMSNorm:
		rows = o.Rows
	case op.LayerNorm:
		rows = o.Rows
	case op.SiLUMul:
		rows = o.Rows
	case op.GELU:
		rows = o.Rows
	case op.Add:
		rows = o.Rows
	case op.RoPE:
		rows = o.Rows
	case op.KVWrite:
		rows = o.Rows
	case op.Attention:
		rows = o.Rows
	case op.Slice:
		rows = o.Rows
	case op.Concat:
		rows = o.Rows
	case op.Permute:
		if !slices.Contains(o.Shape, op.Rows) {
			rows = o.Shape[0]
		}
	}
	if rows == op.Picks {
		return op.Rows // then the run's rows are open too
	}
	return rows
}

// withRows returns the op with another number of rows, possibly [op.Rows]. A Permute is unchanged:
// any of its dimensions may be the rows.
func withRows(o op.Op, rows int) op.Op {
	switch o := o.(type) {
	case op.MatMul:
		o.M = rows
		return o
	case op.Embed:
		o.Rows = rows
		return o
	case op.Pick:
		o.Rows = rows
		return o
	case op.Cast:
		o.Rows = rows
		return o
	case op.RMSNorm:
		o.Rows = rows
		return o
	case op.LayerNorm:
		o.Rows = rows
		return o
	case op.SiLUMul:
		o.Rows = rows
		return o
	case op.GELU:
		o.Rows = rows
		return o
	case op.Add:
		o.Rows = rows
		return o
	case op.RoPE:
		o.Rows = rows
		return o
	case op.KVWrite:
		o.Rows = rows
		return o
	case op.Attention:
		o.Rows = rows
		return o
	case op.Slice:
		o.Rows = rows
		return o
	case op.Concat:
		o.Rows = rows
		return o
	}
	return o
}
