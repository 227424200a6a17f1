package ckptgen

import (
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
	"sync"

	"github.com/x448/float16"

	"github.com/npukit/npukit/npu/dtype"
)

// quantiles are 65536 values that cut the standard normal distribution into equal parts: a 16-bit
// random number picks one. Benchmarks need gigabytes of weights, and a table makes an element cost
// a few nanoseconds.
var quantiles = sync.OnceValue(func() []float32 {
	q := make([]float32, 1<<16)
	for i := range q {
		q[i] = float32(math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/float64(len(q))-1))
	}
	return q
})

// random returns a Fill that writes normal numbers of the type, F32, F16 or BF16.
func random(t dtype.Type, mean, std float64, seed, stream uint64) func(w io.Writer, elements int) error {
	return func(w io.Writer, elements int) error {
		element := func(i uint16) uint32 { // quantile i as an element of the type
			v := float32(mean + std*float64(quantiles()[i]))
			switch t {
			case dtype.F32:
				return math.Float32bits(v)
			case dtype.F16:
				return uint32(float16.Fromfloat32(v))
			}
			return uint32(dtype.FromFloat32(v))
		}
		if elements > 1<<16 {
			table := make([]uint32, 1<<16)
			for i := range table {
				table[i] = element(uint16(i))
			}
			element = func(i uint16) uint32 { return table[i] }
		}
		rng := rand.New(rand.NewPCG(seed, stream))
		_, size := t.Block()
		buf := make([]byte, min(64<<10, (elements*size+15)&^15)) // a multiple of four elements
		for left := elements * size; left > 0; left -= len(buf) {
			for at := 0; at < len(buf); {
				for four, i := rng.Uint64(), 0; i < 4; i++ {
					if v := element(uint16(four >> (16 * i))); size == 4 {
						binary.LittleEndian.PutUint32(buf[at:], v)
					} else {
						binary.LittleEndian.PutUint16(buf[at:], uint16(v))
					}
					at += size
				}
			}
			if _, err := w.Write(buf[:min(left, len(buf))]); err != nil {
				return err
			}
		}
		return nil
	}
}
