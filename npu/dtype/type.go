// Package dtype defines the element types of programs and checkpoints and converts between them.
//
// Plain types (F32, F16, BF16, I32, ...) store one element per unit. Quantized block types (Q8_0,
// Q4_K, ...) pack a fixed number of consecutive elements of a row into a block with shared scales,
// in the layout of GGUF files. [Dequantize] converts any type to FP32.
//
// BF16 is the type of the NPU: the upper half of an FP32, rounded to nearest even. [BFloat16] is
// defined here because Go has no such type and no maintained library rounds that way. IEEE half
// precision comes from github.com/x448/float16.
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

// info has the name and block size of a type.
type info struct {
	name  string
	elems int // elements per block, 1 for plain types
	bytes int // bytes per block
}

// Block sizes of quantized types are those of the GGUF format (ggml's block_q* structures).
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

// String returns the type's name in safetensors and GGUF files, such as "BF16" or "Q4_K".
func (t Type) String() string {
	if int(t) < len(types) {
		return types[t].name
	}
	return fmt.Sprintf("Type(%d)", uint8(t))
}

// Parse returns the type with the given name. It is the inverse of String.
func Parse(name string) (Type, error) {
	for t, i := range types {
		if i.name == name && Type(t) != Invalid {
			return Type(t), nil
		}
	}
	return Invalid, fmt.Errorf("dtype: unknown type %q", name)
}

// MarshalText encodes a type as its name.
func (t Type) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (t *Type) UnmarshalText(b []byte) (err error) {
	*t, err = Parse(string(b))
	return err
}

// Valid reports whether t is one of the defined types other than Invalid.
func (t Type) Valid() bool { return t != Invalid && int(t) < len(types) }

// Quantized reports whether t packs several elements into a block.
func (t Type) Quantized() bool { return t.Valid() && types[t].elems > 1 }

// Block returns the number of elements in a block of t and the block's size in bytes. Blocks of
// plain types have one element.
func (t Type) Block() (elems, bytes int) {
	if !t.Valid() {
		return 1, 0
	}
	return types[t].elems, types[t].bytes
}

// Bytes returns the size of n elements. It is exact only if n is a multiple of the block's
// elements, which callers must check for shapes from untrusted sources.
func (t Type) Bytes(n int) int {
	elems, bytes := t.Block()
	return n / elems * bytes
}
