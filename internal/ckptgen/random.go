package ckptgen

import (
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
	"sync"

	"github.com/npukit/npukit/npu/dtype"
)

// quantiles are 65536 values that cut the standard normal distribution into equal parts: a 16-bit random number picks one. Benchmarks
// need gigabytes of weights, and a table makes an element cost a nanosecond.
var quantiles = sync.OnceValue(func() []float32 {
	q := make([]float32, 1<<16)
	for i := range q {
		q[i] = float32(math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/float64(len(q))-1))
	}
	return q
})

// random gives a Fill that writes normal numbers of the type.
func random(t dtype.Type, mean, std float64, seed, stream uint64) func(w io.Writer, elements int) error {
	return func(w io.Writer, elements int) error {
		_, size := t.Block()
		table := make([]byte, size<<16) // the encoded quantiles
		for i, q := range quantiles() {
			v := float32(mean + std*float64(q))
			switch b := table[i*size:]; t {
			case dtype.F32:
				binary.LittleEndian.PutUint32(b, math.Float32bits(v))
			case dtype.F16:
				var h [1]dtype.Float16
				dtype.F32ToF16(h[:], []float32{v})
				binary.LittleEndian.PutUint16(b, h[0].Bits())
			default:
				binary.LittleEndian.PutUint16(b, uint16(dtype.FromFloat32(v)))
			}
		}
		rng := rand.New(rand.NewPCG(seed, stream))
		buf := make([]byte, 0, 64<<10)
		for elements > 0 {
			buf = buf[:0]
			for len(buf) < cap(buf) && elements > 0 {
				bits := rng.Uint64()
				for i := 0; i < 4 && elements > 0; i++ {
					at := int(bits&0xffff) * size
					buf = append(buf, table[at:at+size]...)
					bits >>= 16
					elements--
				}
			}
			if _, err := w.Write(buf); err != nil {
				return err
			}
		}
		return nil
	}
}
