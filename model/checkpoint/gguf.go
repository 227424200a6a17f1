package checkpoint

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/npukit/npukit/npu/dtype"
)

// A GGUF file has, in little-endian order: "GGUF", version, number of tensors, number of metadata
// entries; the entries (key, kind, value); a description of each tensor (name, dimensions innermost
// first, type, offset); padding; the tensors' data.
//
// Source: the GGUF specification in the ggml repository (docs/gguf.md), version 3.
type gguf struct {
	file    string
	meta    map[string]ggufValue
	tensors []stored // under the file's names
}

// ggufKind is the kind of a metadata value.
type ggufKind uint32

const (
	ggufU8 ggufKind = iota
	ggufI8
	ggufU16
	ggufI16
	ggufU32
	ggufI32
	ggufF32
	ggufBool
	ggufString
	ggufArray
	ggufU64
	ggufI64
	ggufF64
)

// ggufKinds has the name of each kind and the minimum size of a value in bytes: for strings that of
// the length, for arrays that of kind and count.
var ggufKinds = [...]struct {
	name string
	size int
}{
	{"uint8", 1}, {"int8", 1}, {"uint16", 2}, {"int16", 2}, {"uint32", 4}, {"int32", 4}, {"float32", 4}, {"bool", 1},
	{"string", 8}, {"array", 12}, {"uint64", 8}, {"int64", 8}, {"float64", 8},
}

func (k ggufKind) String() string {
	if int(k) < len(ggufKinds) {
		return ggufKinds[k].name
	}
	return fmt.Sprintf("kind %d", uint32(k))
}

// ggufValue is a metadata value as bytes in the mapping: the characters of a string, the elements
// of an array.
type ggufValue struct {
	kind  ggufKind
	bytes []byte
	elem  ggufKind // of an array
	count int
}

// Limits that are checked before anything is allocated. Real files have about 50 entries and at
// most a few thousand tensors.
const (
	maxGGUFEntries = 1 << 16
	maxGGUFTensors = 1 << 16
	maxGGUFKey     = 1<<16 - 1 // the specification's
	maxGGUFName    = 1 << 10
	maxGGUFNesting = 4
	maxGGUFAlign   = 1 << 20
	maxGGUFDims    = 4 // the specification's
)

// ggmlTypes maps the type numbers of tensors. Types without a dtype have only a name.
var ggmlTypes = map[uint32]struct {
	name string
	typ  dtype.Type
}{
	0: {"F32", dtype.F32}, 1: {"F16", dtype.F16}, 30: {"BF16", dtype.BF16}, 28: {"F64", dtype.F64},
	24: {"I8", dtype.I8}, 25: {"I16", dtype.I16}, 26: {"I32", dtype.I32}, 27: {"I64", dtype.I64},
	2: {"Q4_0", dtype.Q4_0}, 3: {"Q4_1", dtype.Q4_1}, 6: {"Q5_0", dtype.Q5_0}, 7: {"Q5_1", dtype.Q5_1},
	8:  {"Q8_0", dtype.Q8_0},
	12: {"Q4_K", dtype.Q4_K}, 13: {"Q5_K", dtype.Q5_K}, 14: {"Q6_K", dtype.Q6_K},
	9: {name: "Q8_1"}, 10: {name: "Q2_K"}, 11: {name: "Q3_K"}, 15: {name: "Q8_K"}, 16: {name: "IQ2_XXS"},
	17: {name: "IQ2_XS"},
	18: {name: "IQ3_XXS"}, 19: {name: "IQ1_S"}, 20: {name: "IQ4_NL"}, 21: {name: "IQ3_S"}, 22: {name: "IQ2_S"},
	23: {name: "IQ4_XS"},
	29: {name: "IQ1_M"}, 34: {name: "TQ1_0"}, 35: {name: "TQ2_0"}, 39: {name: "MXFP4"}, 40: {name: "NVFP4"},
}

// readGGUF reads everything except the tensors' data.
func readGGUF(file string, b []byte) (*gguf, error) {
	r := &ggufReader{b: b}
	r.take(4) // "GGUF", already checked
	if v := r.u32(); r.err == nil && v != 3 {
		feature := fmt.Sprintf("GGUF version %d", v)
		if bits.ReverseBytes32(v) == 3 {
			feature = "a big-endian GGUF file"
		}
		return nil, unsupported(file, feature,
			"version 3 in little-endian order is supported: convert the model again with a current llama.cpp")
	}
	tensors := r.count("tensors", maxGGUFTensors, 8+4+4+8)
	entries := r.count("metadata entries", maxGGUFEntries, 8+4+1)
	g := &gguf{file: file, meta: make(map[string]ggufValue, entries)}
	for i := 0; i < entries && r.err == nil; i++ {
		key := r.str("a metadata key", maxGGUFKey)
		kind := ggufKind(r.u32())
		value := r.value(kind, 0)
		if _, ok := g.meta[key]; ok && r.err == nil {
			r.err = fmt.Errorf("the key %q is repeated", key)
		}
		g.meta[key] = value
	}
	if r.err != nil {
		return nil, &Error{File: file, Problem: "the metadata is damaged", Err: r.err}
	}
	return g, g.readTensors(r, tensors)
}

// readTensors reads the descriptions of n tensors and locates their data.
func (g *gguf) readTensors(r *ggufReader, n int) error {
	m := g.metadata()
	align := m.int("general.alignment", 32)
	if m.err != nil {
		return m.err
	}
	if align < 1 || align > maxGGUFAlign || align&(align-1) != 0 {
		return fileErrorf(g.file, "general.alignment is %d; it must be a power of two, at most %d", align, maxGGUFAlign)
	}
	g.tensors = make([]stored, n)
	offsets := make([]uint64, n)
	seen := make(map[string]bool, n)
	for i := range g.tensors {
		s, offset, err := g.readTensor(r)
		if r.err != nil {
			return &Error{File: g.file, Problem: fmt.Sprintf("the description of tensor %d of %d is damaged", i+1,
				n), Err: r.err}
		}
		if err != nil {
			return err
		}
		if seen[s.name] {
			return s.errorf("is repeated")
		}
		if offset%uint64(align) != 0 {
			return s.errorf("is at offset %d, not a multiple of the alignment %d", offset, align)
		}
		seen[s.name] = true
		g.tensors[i], offsets[i] = s, offset
	}
	start := (r.off + align - 1) / align * align
	data := r.b[min(start, len(r.b)):]
	order := make([]int, n)
	for i := range order {
		order[i] = i
		s, offset := &g.tensors[i], offsets[i]
		elems, size := s.typ.Block()
		bytes := uint64(Tensor{Shape: s.shape}.Elements() / elems * size)
		if offset > uint64(len(data)) || bytes > uint64(len(data))-offset {
			return s.errorf("takes bytes %d to %d of the data, which has only %d: is the file truncated? "+
				"Fetch it again", offset, offset+bytes, len(data))
		}
		s.data = data[offset:][:bytes:bytes]
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(offsets[a], offsets[b]) })
	for i := 1; i < n; i++ {
		before, after := order[i-1], order[i]
		if offsets[before]+uint64(len(g.tensors[before].data)) > offsets[after] {
			return g.tensors[after].errorf("overlaps %q", g.tensors[before].name)
		}
	}
	return nil
}

// readTensor reads one description. If both r.err and the error are nil, the result is complete and
// its size fits an int.
func (g *gguf) readTensor(r *ggufReader) (s stored, offset uint64, err error) {
	s = stored{file: g.file, name: r.str("a tensor name", maxGGUFName)}
	dims := int(min(r.u32(), maxGGUFDims+1))
	if r.err == nil && (dims < 1 || dims > maxGGUFDims) {
		return s, 0, s.errorf("must have 1 to %d dimensions", maxGGUFDims)
	}
	s.shape = make([]int, dims)
	elements := 1
	for i := dims - 1; i >= 0; i-- { // stored innermost first
		d := r.u64()
		high, n := bits.Mul64(uint64(elements), d)
		if r.err == nil && (d == 0 || high != 0 || n > math.MaxInt/8) {
			return s, 0, s.errorf("has a dimension of %d, which no file can hold", d)
		}
		s.shape[i], elements = int(d), int(n)
	}
	number := r.u32()
	offset = r.u64()
	if r.err != nil {
		return s, 0, nil
	}
	t, known := ggmlTypes[number]
	if !known {
		t.name = fmt.Sprintf("number %d", number)
	}
	s.typ, s.typeName = t.typ, t.name
	if t.typ == dtype.Invalid {
		return s, 0, unsupported(g.file, fmt.Sprintf("tensor %q of type %s", s.name, t.name),
			"supported are F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K")
	}
	if block, _ := t.typ.Block(); s.shape[dims-1]%block != 0 {
		return s, 0, s.errorf("is %v of %s, whose rows must be a multiple of %d", s.shape, t.name, block)
	}
	return s, offset, nil
}

// ggufReader reads b sequentially. After the first error it returns zeros.
type ggufReader struct {
	b   []byte
	off int
	err error
}

// take returns the next n bytes.
func (r *ggufReader) take(n int) []byte {
	if r.err == nil && (n < 0 || n > len(r.b)-r.off) {
		r.err = fmt.Errorf("the file ends at byte %d, within %d bytes at byte %d: is it "+
			"truncated? Fetch it again", len(r.b), n, r.off)
	}
	if r.err != nil {
		return nil
	}
	r.off += n
	return r.b[r.off-n : r.off : r.off]
}

func (r *ggufReader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *ggufReader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// count reads a count of items, each of which takes at least size bytes in the rest of the file.
func (r *ggufReader) count(items string, most, size int) int {
	n := r.u64()
	fit := (len(r.b) - r.off) / size
	switch {
	case r.err != nil:
	case n > uint64(fit):
		r.err = fmt.Errorf("it claims %d %s, but at most %d fit into a file of %d bytes: is it truncated? "+
			"Fetch it again", n, items, min(most, fit), len(r.b))
	case n > uint64(most):
		r.err = fmt.Errorf("it claims %d %s, but at most %d are supported", n, items, most)
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

// str reads a string. It is a copy and outlives the mapping.
func (r *ggufReader) str(name string, most int) string {
	return string(r.take(r.count("bytes of "+name, most, 1)))
}

// value reads a value of the kind. depth is the number of enclosing arrays.
func (r *ggufReader) value(kind ggufKind, depth int) ggufValue {
	v := ggufValue{kind: kind}
	switch {
	case r.err != nil:
	case int(kind) >= len(ggufKinds):
		r.err = fmt.Errorf("there is no value kind %d", kind)
	case kind == ggufString:
		v.bytes = r.take(r.count("bytes of a string", math.MaxInt, 1))
	case kind == ggufArray:
		v.elem = ggufKind(r.u32())
		if r.err == nil && int(v.elem) >= len(ggufKinds) {
			r.err = fmt.Errorf("there is no value kind %d", v.elem)
		} else if depth == maxGGUFNesting {
			r.err = fmt.Errorf("arrays are nested more than %d deep", maxGGUFNesting)
		}
		if r.err != nil {
			break
		}
		v.count = r.count("array elements", math.MaxInt, v.elem.size())
		start := r.off
		if v.elem != ggufString && v.elem != ggufArray {
			r.take(v.count * v.elem.size())
		} else {
			for i := 0; i < v.count && r.err == nil; i++ {
				r.value(v.elem, depth+1)
			}
		}
		v.bytes = r.b[start:r.off:r.off]
	default:
		v.bytes = r.take(kind.size())
	}
	return v
}

func (k ggufKind) size() int { return ggufKinds[k].size }
