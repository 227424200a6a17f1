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

// metadata looks values up, and keeps the first error: a value of the wrong kind, or one that is
// needed and not there.
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

// int reads an integer of any width; needed makes its absence an error.
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
	m.fail(key, "is of kind %v, where an integer is needed", v.kind)
	return absent
}

// needed stands for a value that must be there.
const needed = math.MinInt

// float reads a number. A float32 becomes the float64 with the same shortest decimals, so that 1e-5
// is 1e-5 in every format.
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
		m.fail(key, "is of kind %v, where a number is needed", v.kind)
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
		m.fail(key, "is of kind %v, where a bool is needed", v.kind)
		return absent
	}
	return v.bytes[0] != 0
}

func (m *metadata) string(key string) string {
	v, ok := m.g.meta[key]
	if ok && v.kind != ggufString {
		m.fail(key, "is of kind %v, where a string is needed", v.kind)
		return ""
	}
	return string(v.bytes)
}

// array gives an array of one of the kinds; nil bytes if it is absent.
func (m *metadata) array(key, of string, kinds ...ggufKind) ggufValue {
	v, ok := m.g.meta[key]
	if !ok {
		return ggufValue{}
	}
	if v.kind != ggufArray || !slices.Contains(kinds, v.elem) {
		m.fail(key, "is no array of %s", of)
		return ggufValue{}
	}
	return v
}

// strings reads an array of strings. They share one copy of the array: a vocabulary has hundreds of
// thousands.
func (m *metadata) strings(key string) []string {
	v := m.array(key, "strings", ggufString)
	if v.bytes == nil {
		return nil
	}
	all, list := string(v.bytes), make([]string, v.count)
	for i, at := 0, 0; i < v.count; i++ {
		n := int(binary.LittleEndian.Uint64(v.bytes[at:])) // was checked when read over
		list[i] = all[at+8:][:n]
		at += 8 + n
	}
	return list
}

func (m *metadata) int32s(key string) []int32 {
	v := m.array(key, "32-bit integers", ggufI32, ggufU32)
	return slices.Clone(dtype.Int32s(v.bytes))
}

// id reads a token id; -1 if it is absent, which files also write as the largest number.
func (m *metadata) id(key string) int {
	id := m.int(key, -1)
	if id >= math.MaxInt32 {
		return -1
	}
	return id
}

// templates reads the chat templates by name.
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
