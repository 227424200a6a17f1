package defect

import "github.com/npukit/npukit/npu/op"

// Launch is a launch about to be lowered.
type Launch struct {
	Op    op.Op
	Views []View // one for each of the op's operands

	// Views of another launch of the same program, by the name it has there; nil where there is
	// none.
	Other func(name string) []View
}

// View is the memory that an operand is bound to: rows that lie Stride elements apart, from Offset
// on. The op says how many, and how long.
type View struct {
	Arg            int
	Offset, Stride int // elements
	// The memory of a constant in the run before, of the same program: a buffer that nobody
	// exchanged.
	Before bool
}
