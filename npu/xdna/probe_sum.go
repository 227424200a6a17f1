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

// Sum is what a program that adds two vectors was seen to do.
type Sum struct {
	Type     dtype.Type    // that its elements were found to have: I32, F32 or BF16
	Elements int           // all of which were right
	Run      time.Duration // of the dispatch that was right
}

// ProbeSum runs an artefact with three arguments of equal size, c = a + b, and checks every element. A manifest does not say what type the
// elements have, so it is run over small integers in each of three types, and is right if it adds one of them.
func (d *Device) ProbeSum(ctx context.Context, a *Artefact) (s Sum, err error) {
	if n := a.Arguments; len(n) != 3 || n[0] != n[1] || n[1] != n[2] || n[0]%4 != 0 {
		return s, fmt.Errorf("npu/xdna: artefact %s: a sum of two vectors has three arguments of one size, whole 32-bit words; its manifest says %v bytes", a.Name, n)
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
		return fmt.Errorf("it does not add: %w", wrong)
	})
	return s, err
}

// smallTerms are the terms of element e and what stands in the sum's place before. All sums are below 256, which BF16 has exactly.
func smallTerms(e int) [3]int { return [3]int{e % 61, 1 + e%127, 255} }

// putSmall writes a small integer, in the other types a multiple of one, as element e of a vector. The multiples are such that halves of FP32 and I32
// numbers do not add up as BF16 does.
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

// firstWrong is the first element that is not the sum of its terms, or -1.
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
