// Package kernel defines the interface between the device and its kernels: commands, element types,
// and the memory layouts of compressed and quantized weights. The C kernels mirror it in npk.h.
package kernel

import (
	"unsafe"

	"github.com/npukit/npukit/npu/dtype"
)

// Command is one unit of work for the kernels. Arrays of commands live outside the Go heap and are
// passed to C as they are: npk_cmd in npk.h has the same layout and documents which fields each
// kind of command reads.
type Command struct {
	Kind       int32
	Barrier    int32 // 1 to wait until every earlier command is complete
	AT, BT     int32 // element types of A, B, C and Y
	CT, YT     int32
	Flags      int32
	Table      int32 // the kernel table that serves the command; 0 is the engine's default
	M, N, K    int64
	LDA, LDB   int64 // elements from row to row
	LDC, LDY   int64
	Block      int64 // first block of B, if it is BF12
	KVHeads    int64
	AHead      int64 // elements from head to head in A, B and Y
	BHead      int64
	YHead      int64
	Ahead      int64 // prefetch distance in bytes
	Epsilon    float32
	Scale      float32
	Extents    [4]int64 // of a copy
	AStrides   [4]int64
	YStrides   [4]int64
	A, B, C, Y unsafe.Pointer
	Scratch    unsafe.Pointer
	Segs       *Segment
	NSegs      int64
	Start, End int64 // ns since the run began; set if the run is traced
	_          [1]int64
	Next       [4]int64 // chunk counters, by phase
	_          [4]int64
}

// Segments returns the segments of c.
func (c *Command) Segments() []Segment { return unsafe.Slice(c.Segs, c.NSegs) }

// Segment is one session's rows, with that session's state for the command. C calls it npk_seg.
type Segment struct {
	Row, Rows    int64 // first row in A and Y, and how many
	Pos          int64 // position of the first row
	K, V         unsafe.Pointer
	KHead, VHead int64 // elements from head to head in K and V
}

// Kinds of commands, as in npk.h.
const (
	Pack int32 = iota + 1
	GEMM
	GEMV
	InPlace
	Embed
	RMSNorm
	LayerNorm
	RoPE
	KVWrite
	Attention
	SiLUMul
	GELU
	Add
	Copy
	Read
	Peak
)

// Flags of commands, as in npk.h.
const (
	FlagTanh  int32 = 1 << iota // GELU in its tanh approximation
	FlagKN                      // B of a product is [k, n]
	FlagRight                   // Pack makes right operands of the matrix unit, not left ones
	FlagWide                    // Pack makes panels as wide as those of weights
	FlagPlus                    // Y is C plus the product
	FlagGated                   // Y is SiLU(C) times the product
)

// FlagsFused are the flags of products that continue with the following op.
const FlagsFused = FlagPlus | FlagGated

// Element types, as in npk.h.
const (
	F32 int32 = iota
	BF16
	F16
	I32
	BF12x4  // weights in BF12, in blocks of 4 rows
	BF12x16 // weights in BF12, in blocks of 16 rows
	Q8_0    // the first of the grouped types: see Forms
	Q4_0
	Q5_0
	Q4_1
	Q5_1
	Q4_K
	Q5_K
	Q6_K
)

// Types maps the element types that kernels read from plain memory to their codes.
var Types = map[dtype.Type]int32{dtype.F32: F32, dtype.BF16: BF16, dtype.F16: F16, dtype.I32: I32}

// TypeBytes is the size of an element by its code.
var TypeBytes = [...]int64{F32: 4, BF16: 2, F16: 2, I32: 4}

// Element returns the address of element i of p.
func Element(p unsafe.Pointer, t int32, i int64) unsafe.Pointer {
	return unsafe.Add(p, i*TypeBytes[t])
}

// Product describes a matrix product to the function that selects its kernel.
type Product struct {
	A, W       int32 // types of activations and weights
	M, K       int64
	Transposed bool // the weights are [n, k]
}

// Choice is the kernel that computes a product.
type Choice struct {
	Kind      int32 // GEMV, GEMM or InPlace; the latter two read packed activations
	Table     int32 // of the product, and of the Pack before it
	PackFlags int32 // of the Pack
	Rounding  Rounding
}

// Rounding is the operand that a kernel with quantized weights rounds before it multiplies.
type Rounding int

// A kernel with RoundsNothing multiplies FP32.
const (
	RoundsNothing     Rounding = iota
	RoundsActivations          // to integers of 16 bits, or 31 if the result is FP32
	RoundsWeights              // to BF16
	SplitsWeights              // to the sum of two BF16 numbers, or one if the result is BF16
)
