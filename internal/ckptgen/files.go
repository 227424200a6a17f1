package ckptgen

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"github.com/npukit/npukit/npu/dtype"
)

// Tensor is a tensor to write, with the contents of Data, or else of Fill.
type Tensor struct {
	Name  string
	Type  dtype.Type
	Shape []int // row-major, outermost first
	Data  []byte
	Fill  func(w io.Writer, elements int) error
}

func (t Tensor) elements() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

func (t Tensor) bytes() int { return t.Type.Bytes(t.elements()) }

func (t Tensor) write(w io.Writer) error {
	if t.Fill != nil {
		return t.Fill(w, t.elements())
	}
	if len(t.Data) != t.bytes() {
		return fmt.Errorf("tensor %s has %d bytes, its shape needs %d", t.Name, len(t.Data), t.bytes())
	}
	_, err := w.Write(t.Data)
	return err
}

// WriteSafetensors writes a safetensors file.
func WriteSafetensors(file string, tensors []Tensor) error {
	type entry struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	header, at := map[string]any{"__metadata__": map[string]string{"format": "pt"}}, 0
	for _, t := range tensors {
		header[t.Name] = entry{t.Type.String(), t.Shape, [2]int{at, at + t.bytes()}}
		at += t.bytes()
	}
	text, err := json.Marshal(header)
	if err != nil {
		return fmt.Errorf("ckptgen: %w", err)
	}
	text = append(text, bytes.Repeat([]byte(" "), -len(text)&7)...)
	return create(file, func(w *bufio.Writer) error {
		err := binary.Write(w, binary.LittleEndian, uint64(len(text)))
		if err == nil {
			_, err = w.Write(text)
		}
		for i := 0; i < len(tensors) && err == nil; i++ {
			err = tensors[i].write(w)
		}
		return err
	})
}

// KV is a metadata entry of a GGUF file. Value is a bool, int32, uint32, uint64, float32, string,
// []string, []int32 or []float32.
type KV struct {
	Key   string
	Value any
}

// ggml's numbers for tensor types.
var ggmlType = map[dtype.Type]uint32{
	dtype.F32: 0, dtype.F16: 1, dtype.Q4_0: 2, dtype.Q4_1: 3, dtype.Q5_0: 6, dtype.Q5_1: 7, dtype.Q8_0: 8,
	dtype.Q4_K: 12, dtype.Q5_K: 13, dtype.Q6_K: 14, dtype.I32: 26, dtype.BF16: 30,
}

// ggufAlign is the alignment of tensors in a GGUF file whose metadata sets none.
const ggufAlign = 32

// WriteGGUF writes a GGUF file, version 3. Names are written as they are given.
func WriteGGUF(file string, meta []KV, tensors []Tensor) error {
	b := []byte("GGUF")
	le := binary.LittleEndian
	str := func(s string) { b = append(le.AppendUint64(b, uint64(len(s))), s...) }
	b = le.AppendUint32(b, 3)
	b = le.AppendUint64(b, uint64(len(tensors)))
	b = le.AppendUint64(b, uint64(len(meta)))
	array := func(kind uint32, n int) {
		b = le.AppendUint64(le.AppendUint32(le.AppendUint32(b, 9), kind), uint64(n))
	}
	for _, kv := range meta {
		str(kv.Key)
		switch v := kv.Value.(type) {
		case uint32:
			b = le.AppendUint32(le.AppendUint32(b, 4), v)
		case int32:
			b = le.AppendUint32(le.AppendUint32(b, 5), uint32(v))
		case float32:
			b = le.AppendUint32(le.AppendUint32(b, 6), math.Float32bits(v))
		case bool:
			b = append(le.AppendUint32(b, 7), 0)
			if v {
				b[len(b)-1] = 1
			}
		case string:
			b = le.AppendUint32(b, 8)
			str(v)
		case uint64:
			b = le.AppendUint64(le.AppendUint32(b, 10), v)
		case []string:
			array(8, len(v))
			for _, s := range v {
				str(s)
			}
		case []int32:
			array(5, len(v))
			for _, n := range v {
				b = le.AppendUint32(b, uint32(n))
			}
		case []float32:
			array(6, len(v))
			for _, f := range v {
				b = le.AppendUint32(b, math.Float32bits(f))
			}
		default:
			return fmt.Errorf("ckptgen: %s: no metadata kind for a %T", kv.Key, v)
		}
	}
	offset := 0
	for _, t := range tensors {
		str(t.Name)
		b = le.AppendUint32(b, uint32(len(t.Shape)))
		for _, d := range slices.Backward(t.Shape) {
			b = le.AppendUint64(b, uint64(d))
		}
		number, ok := ggmlType[t.Type]
		if !ok {
			return fmt.Errorf("ckptgen: %s: no GGUF type for %v", t.Name, t.Type)
		}
		b = le.AppendUint64(le.AppendUint32(b, number), uint64(offset))
		offset += t.bytes() + padding(t.bytes())
	}
	return create(file, func(w *bufio.Writer) error {
		_, err := w.Write(append(b, make([]byte, padding(len(b)))...))
		for i := 0; i < len(tensors) && err == nil; i++ {
			if err = tensors[i].write(w); err == nil {
				_, err = w.Write(make([]byte, padding(tensors[i].bytes())))
			}
		}
		return err
	})
}

func padding(n int) int { return -n & (ggufAlign - 1) }

func create(file string, write func(w *bufio.Writer) error) error {
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("ckptgen: %w", err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	if err := errors.Join(write(w), w.Flush(), f.Close()); err != nil {
		return fmt.Errorf("ckptgen: %s: %w", file, err)
	}
	return nil
}
