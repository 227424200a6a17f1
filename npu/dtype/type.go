// Package dtype names the element types that programs and checkpoints use, and converts between them.
//
// Three kinds of type exist. Plain ones (F32, F16, BF16, I32, ...) have one element per unit. Quantised block types (Q8_0, Q4_K, ...) pack
// a fixed number of consecutive elements of a row into one block with shared scales; their layouts are those of GGUF files. Whatever the
// type, [Dequantize] gives the FP32 values that the bytes stand for.
//
// BF16 is the type of the NPU: the upper half of an FP32, rounded to nearest even. Go has no such type and no well-kept library rounds it
// that way, so [BFloat16] is here; IEEE half precision comes from github.com/x448/float16.
package dtype

//lint:file-ignore ST1003 the types are called what GGUF calls them

import "fmt"

// Type is an element type.
type Type uint8

const (
	Invalid Type = iota
	F64
	F32
	F16
	BF16
	I64
	I32
	I16
	I8
	U8
	Bool
	Q8_0
	Q4_0
	Q4_1
	Q5_0
	Q5_1
	Q4_K
	Q5_K
	Q6_K
)

// info is what must be known of a type to find its elements: every size follows from it.
type info struct {
	name  string
	elems int // elements per block; 1 for plain types
	bytes int // bytes per block
}

// Block sizes of the quantised types are those of the GGUF format (ggml's block_q* structures).
var types = [...]info{
	Invalid: {"invalid", 1, 0},
	F64:     {"F64", 1, 8},
	F32:     {"F32", 1, 4},
	F16:     {"F16", 1, 2},
	BF16:    {"BF16", 1, 2},
	I64:     {"I64", 1, 8},
	I32:     {"I32", 1, 4},
	I16:     {"I16", 1, 2},
	I8:      {"I8", 1, 1},
	U8:      {"U8", 1, 1},
	Bool:    {"BOOL", 1, 1},
	Q8_0:    {"Q8_0", 32, 34},
	Q4_0:    {"Q4_0", 32, 18},
	Q4_1:    {"Q4_1", 32, 20},
	Q5_0:    {"Q5_0", 32, 22},
	Q5_1:    {"Q5_1", 32, 24},
	Q4_K:    {"Q4_K", 256, 144},
	Q5_K:    {"Q5_K", 256, 176},
	Q6_K:    {"Q6_K", 256, 210},
}

// String is the type's name as safetensors and GGUF write it, such as "BF16" or "Q4_K".
func (t Type) String() string {
	if int(t) < len(types) {
		return types[t].name
	}
	return fmt.Sprintf("Type(%d)", uint8(t))
}

// Parse is the inverse of String.
func Parse(name string) (Type, error) {
	for t, i := range types {
		if i.name == name && Type(t) != Invalid {
			return Type(t), nil
		}
	}
	return Invalid, fmt.Errorf("dtype: unknown type %q", name)
}

// MarshalText and UnmarshalText make plans readable: a type is its name.
func (t Type) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (t *Type) UnmarshalText(b []byte) (err error) {
	*t, err = Parse(string(b))
	return err
}

// Valid reports whether t is one of the types above.
func (t Type) Valid() bool { return t != Invalid && int(t) < len(types) }

// Quantized reports whether t packs several elements into a block.
func (t Type) Quantized() bool { return t.Valid() && types[t].elems > 1 }

// Block gives the number of elements in a block of t and the block's size in bytes; plain types have blocks of one element.
func (t Type) Block() (elems, bytes int) {
	if !t.Valid() {
		return 1, 0
	}
	return types[t].elems, types[t].bytes
}

// Bytes is the size of n elements. A quantised row is a whole number of blocks: n must be a multiple of the block, which callers check
// when they read a shape from outside.
func (t Type) Bytes(n int) int {
	elems, bytes := t.Block()
	return n / elems * bytes
}
