package xdna

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
)

// Sum is the result of [Device.ProbeSum].
type Sum struct {
	Type     dtype.Type    // detected element type: I32, F32 or BF16
	Elements int           // number of elements, all correct
	Run      time.Duration // time of the correct dispatch
}

// ProbeSum runs an artefact with three arguments of equal size, c = a + b, and checks every
// element. A manifest has no element types, so ProbeSum tries three of them with small integers. It
// returns an error unless the result is correct for one type.
func (d *Device) ProbeSum(ctx context.Context, a *Artefact) (s Sum, err error) {
	if n := a.Arguments; len(n) != 3 || n[0] != n[1] || n[1] != n[2] || n[0]%4 != 0 {
		return s, fmt.Errorf("npu/xdna: artefact %s: want three arguments of equal size in whole "+
			"32-bit words, manifest has %v bytes", a.Name, n)
	}
	err = d.probe(ctx, a, func(r run, args []memory) error {
		var wrong error
		for _, typ := range []dtype.Type{dtype.BF16, dtype.F32, dtype.I32} {
			n := a.Arguments[0]
			for i, m := range args {
				for e := range n / typ.Bytes(1) {
					putSmall(typ, m.bytes(), e, smallTerms(e)[i])
				}
				if err := m.sync(npu.ToDevice, 0, n); err != nil {
					return err
				}
			}
			took, err := timed(ctx, r)
			if err != nil {
				return err
			}
			if err := args[2].sync(npu.FromDevice, 0, n); err != nil {
				return err
			}
			e := firstWrong(typ, args[2].bytes()[:n])
			if e < 0 {
				s = Sum{typ, n / typ.Bytes(1), took}
				return nil
			}
			wrong = errors.Join(wrong, fmt.Errorf("as %s, element %d is not the sum", typ, e))
		}
		return fmt.Errorf("the program does not add: %w", wrong)
	})
	return s, err
}

// smallTerms returns the two terms of element e and the initial value of its sum. All sums are
// below 256, so they are exact in BF16.
func smallTerms(e int) [3]int { return [3]int{e % 61, 1 + e%127, 255} }

// putSmall writes v as element e, scaled for F32 and I32 so that their 16-bit halves do not also
// add up as BF16.
func putSmall(typ dtype.Type, mem []byte, e, v int) {
	switch typ {
	case dtype.BF16:
		binary.LittleEndian.PutUint16(mem[2*e:], uint16(dtype.FromFloat32(float32(v))))
	case dtype.F32:
		binary.LittleEndian.PutUint32(mem[4*e:], math.Float32bits(float32(v)*1025/1024)) // exact
	default:
		binary.LittleEndian.PutUint32(mem[4*e:], uint32(v*4097))
	}
}

// firstWrong returns the index of the first element that is not the sum of its terms, or -1.
func firstWrong(typ dtype.Type, mem []byte) int {
	width := typ.Bytes(1)
	want := make([]byte, width)
	for e := range len(mem) / width {
		terms := smallTerms(e)
		putSmall(typ, want, 0, terms[0]+terms[1])
		if !slices.Equal(mem[e*width:][:width], want) {
			return e
		}
	}
	return -1
}
