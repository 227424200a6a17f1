// Package hostvalue names the values of a plan that the host fills or reads, and the table that it
// computes. They are the contract between package plan, which declares them, and package model,
// which runs plans.
package hostvalue

import (
	"slices"
	"strings"

	"github.com/npukit/npukit/npu/op"
)

// Every plan has these values.
const (
	IDs    = "ids"    // [rows] token ids
	RoPE   = "rope"   // [rows headDim] cosines and sines of the rows' positions
	Picks  = "picks"  // [picks] rows whose logits are wanted
	Logits = "logits" // [picks vocab]
)

// RoPETable names a table that constants can be made from, like the checkpoint's tensors: BF16
// [seq_len headDim], the cosines and sines of each position.
const RoPETable = "rope.table"

// Is reports whether the host fills or reads the value of this name.
func Is(name string) bool {
	return name == IDs || name == Picks || name == Logits || IsRoPE(name)
}

// IsRoPE reports whether the host fills the value of this name with cosines and sines: RoPE, and
// every value named "rope.X".
func IsRoPE(name string) bool { return name == RoPE || strings.HasPrefix(name, RoPE+".") }

// RoPEWidth returns the elements of one row of a value that the host fills with cosines and sines,
// and 0 for other values. A row repeats the values of its position as often as they fit: side by
// side, once for each head that a row has room for.
func RoPEWidth(name string, shape []int) int {
	switch {
	case !IsRoPE(name):
		return 0
	case len(shape) > 1 && !slices.ContainsFunc(shape, func(d int) bool { return d < 0 }):
		return (op.Size{}).Elements(shape[1:])
	}
	return (op.Size{Rows: 1}).Elements(shape)
}
