package cpu

import (
	"unsafe"

	"github.com/npukit/npukit/npu/dtype"
)

// command is one unit of work for an engine. Arrays of it lie outside the Go heap and are passed to C as they are: npk_cmd in npk.h
// has the same layout, and documents which kind reads which fields.
type command struct {
	kind       int32
	barrier    int32 // wait until every earlier command is complete
	at, bt     int32 // element types of a, b, c, y
	ct, yt     int32
	flags, _   int32
	m, n, k    int64
	lda, ldb   int64 // elements from row to row
	ldc, ldy   int64
	p          [12]int64
	f          [4]float32
	a, b, c, y unsafe.Pointer
	scratch    unsafe.Pointer
	segs       *segment
	nsegs      int64
	start, end int64 // ns since the engine began, when traced
	_          [6]int64
	next       [4]int64 // chunk counters
	_          [4]int64
}

// segment is npk_seg: one session's rows, with its state for the command at hand.
type segment struct {
	row, rows    int64 // first row in a and y, and how many
	pos          int64 // position of the first
	k, v         unsafe.Pointer
	khead, vhead int64 // elements from head to head in k and v
}

// Kinds of commands: the enumeration in npk.h.
const (
	kindPack int32 = iota + 1
	kindGEMM
	kindGEMV
	kindInPlace
	kindEmbed
	kindRMSNorm
	kindLayerNorm
	kindRoPE
	kindKVWrite
	kindAttention
	kindSiLUMul
	kindGELU
	kindAdd
	kindCopy
)

// Flags of commands.
const (
	flagPairs int32 = 1 << iota // panels of bfloat16 pairs
	flagTanh                    // GELU by its tanh approximation
	flagKN                      // b of a matrix product is [k, n]
	flagTiles                   // in the matrix unit: panels, where there are any, are tiles
	flagUnits                   // quants as pairs of bfloat16, few rows, scaled unit by unit
	flagWide                    // panels of activations are as wide as those of weights
	flagPlus                    // y is c plus the product
	flagGated                   // y is silu(c) times the product
)

// Element types of commands.
const (
	typeF32 int32 = iota
	typeBF16
	typeF16
	typeI32
	typeBF12   // of weights that are a bf12Weight in quads
	typeStrips // and in strips
	typeQ8_0   // from here on weights in groups: see forms
	typeQ4_0
	typeQ5_0
	typeQ4_1
	typeQ5_1
	typeQ4_K
	typeQ5_K
	typeQ6_K
)

// typeCodes are the types that kernels read.
var typeCodes = map[dtype.Type]int32{dtype.F32: typeF32, dtype.BF16: typeBF16, dtype.F16: typeF16, dtype.I32: typeI32}

// typeBytes is the size of an element by its code.
var typeBytes = [...]int64{typeF32: 4, typeBF16: 2, typeF16: 2, typeI32: 4}

func (c *command) segments() []segment { return unsafe.Slice(c.segs, c.nsegs) }

// element is the address of the i-th element from p on.
func element(p unsafe.Pointer, t int32, i int64) unsafe.Pointer { return unsafe.Add(p, i*typeBytes[t]) }
