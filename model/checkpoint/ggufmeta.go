package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/npukit/npukit/npu/dtype"
)

// metadata reads values and keeps the first error: a value of the wrong kind, or a missing one.
type metadata struct {
	g   *gguf
	err error
}

func (g *gguf) metadata() *metadata { return &metadata{g: g} }

func (m *metadata) has(key string) bool {
	_, ok := m.g.meta[key]
	return ok
}

func (m *metadata) fail(key, format string, args ...any) {
	if m.err == nil {
		m.err = fileErrorf(m.g.file, "metadata %q %s", key, fmt.Sprintf(format, args...))
	}
}

// int reads an integer of any width. If absent is needed, a missing value is an error.
func (m *metadata) int(key string, absent int) int {
	v, ok := m.g.meta[key]
	if !ok {
		if absent == needed {
			m.fail(key, "is missing")
		}
		return absent
	}
	le, b := binary.LittleEndian, v.bytes
	switch v.kind {
	case ggufU8:
		return int(b[0])
	case ggufI8:
		return int(int8(b[0]))
	case ggufU16:
		return int(le.Uint16(b))
	case ggufI16:
		return int(int16(le.Uint16(b)))
	case ggufU32:
		return int(min(uint64(le.Uint32(b)), math.MaxInt))
	case ggufI32:
		return int(int32(le.Uint32(b)))
	case ggufU64:
		return int(min(le.Uint64(b), math.MaxInt))
	case ggufI64:
		return int(max(min(int64(le.Uint64(b)), math.MaxInt), math.MinInt))
	}
	m.fail(key, "is of kind %v, expected an integer", v.kind)
	return absent
}

// needed marks a required value.
const needed = math.MinInt

// float reads a number. A float32 becomes the float64 with the same shortest decimals, so 1e-5 is
// 1e-5 in every format.
func (m *metadata) float(key string, absent float64) float64 {
	v, ok := m.g.meta[key]
	if !ok {
		return absent
	}
	switch v.kind {
	case ggufF32:
		f := math.Float32frombits(binary.LittleEndian.Uint32(v.bytes))
		d, err := strconv.ParseFloat(strconv.FormatFloat(float64(f), 'g', -1, 32), 64)
		if err != nil {
			return float64(f)
		}
		return d
	case ggufF64:
		return math.Float64frombits(binary.LittleEndian.Uint64(v.bytes))
	case ggufString, ggufArray, ggufBool:
		m.fail(key, "is of kind %v, expected a number", v.kind)
		return absent
	}
	return float64(m.int(key, 0))
}

func (m *metadata) bool(key string, absent bool) bool {
	v, ok := m.g.meta[key]
	if !ok {
		return absent
	}
	if v.kind != ggufBool {
		m.fail(key, "is of kind %v, expected a bool", v.kind)
		return absent
	}
	return v.bytes[0] != 0
}

func (m *metadata) string(key string) string {
	v, ok := m.g.meta[key]
	if ok && v.kind != ggufString {
		m.fail(key, "is of kind %v, expected a string", v.kind)
		return ""
	}
	return string(v.bytes)
}

// array returns an array of one of the kinds, or nil bytes if it is missing.
func (m *metadata) array(key, of string, kinds ...ggufKind) ggufValue {
	v, ok := m.g.meta[key]
	if !ok {
		return ggufValue{}
	}
	if v.kind != ggufArray || !slices.Contains(kinds, v.elem) {
		m.fail(key, "is not an array of %s", of)
		return ggufValue{}
	}
	return v
}

// strings reads an array of strings. They share one copy of the array, because a vocabulary has
// hundreds of thousands.
func (m *metadata) strings(key string) []string {
	v := m.array(key, "strings", ggufString)
	if v.bytes == nil {
		return nil
	}
	all, list := string(v.bytes), make([]string, v.count)
	for i, at := 0, 0; i < v.count; i++ {
		n := int(binary.LittleEndian.Uint64(v.bytes[at:])) // checked by ggufReader.value
		list[i] = all[at+8:][:n]
		at += 8 + n
	}
	return list
}

func (m *metadata) int32s(key string) []int32 {
	v := m.array(key, "32-bit integers", ggufI32, ggufU32)
	return slices.Clone(dtype.Int32s(v.bytes))
}

// id reads a token id. It is -1 if it is missing; some files write the largest number instead.
func (m *metadata) id(key string) int {
	id := m.int(key, -1)
	if id >= math.MaxInt32 {
		return -1
	}
	return id
}

// templates returns the chat templates by name.
func (m *metadata) templates() templates {
	const key = "tokenizer.chat_template"
	all := templates{}
	if m.has(key) {
		all[defaultTemplate] = m.string(key)
	}
	for k := range m.g.meta {
		if name, ok := strings.CutPrefix(k, key+"."); ok {
			all[name] = m.string(k)
		}
	}
	return all
}
