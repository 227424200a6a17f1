package gatetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// operand is the content of one operand.
type operand struct {
	bytes  []byte    // in the program's type
	values []float32 // as the device reads them; nil for indices and results
	ids    []int32   // indices
}

// operands has one operand for each of the op's, and the caches of each segment.
type operands struct {
	list   []operand
	caches [][]operand // [segment][State operand]
}

// spare is the number of cache positions after the last used one. Nothing may read or write them.
const spare = 3

// makeOperands returns seeded operands, rounded as the device sees them. Equal arguments give equal
// operands. Constants are taken from weights unless it is nil.
//
// The distribution is that of the NPU kernel registry's harness, because its published errors hold
// for it: standard normal, divided by sqrt(K) for both operands of a GEMM and times 4 for a GEMV;
// RoPE's table has the cosines and sines of theta 500000.
//
// Source: Xilinx/mlir-air e972f2942, the run scripts of its kernel registry. The generator differs
// from upstream's.
func makeOperands(o op.Op, types []dtype.Type, opts *Options, size op.Size, exact []dtype.Type,
	seed uint64, weights *operands) (*operands, error) {
	all := &operands{list: make([]operand, len(types))}
	scale := float32(1)
	if m, ok := o.(op.MatMul); ok {
		scale = float32(1 / math.Sqrt(float64(m.K)))
		if size.Resolve(m.M) == 1 {
			scale = 4
		}
	}
	for range opts.Segments {
		all.caches = append(all.caches, nil)
	}
	for i, want := range o.Operands() {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		typ := types[i]
		var err error
		r := roleOf(o, i)
		if r == constant && weights != nil {
			all.list[i] = weights.list[i]
			continue
		}
		switch r {
		case cache:
			for s, seg := range opts.Segments {
				size.Capacity = seg.Pos + seg.Rows + spare
				c := operand{values: normal(rng, size.Elements(want.Shape), 1)}
				c.bytes = encode(typ, c.values)
				if !want.Write {
					poisonFuture(&c, typ, want.Shape[0], size.Capacity, want.Shape[2])
				}
				all.caches[s] = append(all.caches[s], c)
			}
		case index:
			all.list[i].ids = indices(rng, size.Elements(want.Shape), limit(o, size))
			all.list[i].bytes = slices.Clone(dtype.AsBytes(all.list[i].ids))
		case result:
			n := size.Elements(want.Shape)
			all.list[i].bytes = make([]byte, typ.Bytes(n)+guard)
			for j := range all.list[i].bytes {
				all.list[i].bytes[j] = poison
			}
		default:
			n := size.Elements(want.Shape)
			switch {
			case typ.Quantized():
				all.list[i], err = quantized(rng, typ, n, scale)
			case o.Kind() == "RoPE" && want.Name == "table":
				all.list[i].values = angles(o.(op.RoPE), opts.Segments)
			default:
				all.list[i].values = normal(rng, n, scale)
			}
			if err != nil {
				return nil, err
			}
			if !typ.Quantized() {
				all.list[i].bytes = encode(typ, all.list[i].values)
			}
			if r == constant && !slices.Contains(exact, typ) {
				encode(dtype.BF16, all.list[i].values) // as the device holds it
			}
		}
	}
	return all, nil
}

// exact returns the weight types that the device does not round. It rounds others to BF16, and so
// does the reference.
func (k *kernel) exact() []dtype.Type {
	info := k.dev.Info()
	list := slices.Concat(info.InPlace, info.Repacked, info.Compressed)
	if m, ok := k.o.(op.MatMul); ok && k.types[0] == dtype.BF16 && k.size.Resolve(m.M) > info.FewRows {
		list = slices.DeleteFunc(list, func(t dtype.Type) bool {
			return slices.Contains(info.Rounded,
				t)
		})
	}
	return list
}

// poison fills results and unused memory: NaN in every floating-point type.
const poison = 0xff

// guard is the number of bytes after a result that must stay unchanged.
const guard = 256

// A large operand repeats stretches of a pool of random values: otherwise the generator would take
// most of a suite's time.
const pool, stretch = 1 << 14, 64

// normal returns normal values with a standard deviation.
func normal(rng *rand.Rand, n int, deviation float32) []float32 {
	x := make([]float32, n)
	fresh := x[:min(n, pool)]
	for i := range fresh {
		fresh[i] = deviation * float32(rng.NormFloat64())
	}
	for i := pool; i < n; i += stretch {
		copy(x[i:], fresh[rng.IntN(pool-stretch):][:stretch])
	}
	return x
}

func indices(rng *rand.Rand, n, limit int) []int32 {
	x := make([]int32, n)
	for i := range x {
		x[i] = int32(rng.IntN(limit))
	}
	return x
}

// limit returns the number of rows that an index can name.
func limit(o op.Op, size op.Size) int {
	switch o := o.(type) {
	case op.Embed:
		return o.Vocab
	case op.Pick:
		return size.Resolve(o.Rows)
	}
	return 1
}

// encode returns values in a plain type and rounds them in place.
func encode(typ dtype.Type, values []float32) []byte {
	switch typ {
	case dtype.BF16:
		h := make([]dtype.BFloat16, len(values))
		dtype.F32ToBF16(h, values)
		dtype.BF16ToF32(values, h)
		return dtype.AsBytes(h)
	case dtype.F16:
		h := make([]dtype.Float16, len(values))
		dtype.F32ToF16(h, values)
		dtype.F16ToF32(values, h)
		return dtype.AsBytes(h)
	}
	return slices.Clone(dtype.AsBytes(values))
}

// poisonFuture fills the positions after the last one of a cache [heads, capacity, width] with NaN,
// in the device's copy only.
func poisonFuture(c *operand, typ dtype.Type, heads, capacity, width int) {
	for h := range heads {
		end := typ.Bytes((h + 1) * capacity * width)
		from := end - typ.Bytes(spare*width)
		for i := from; i < end; i++ {
			c.bytes[i] = poison
		}
	}
}

// ropeTheta is the base of RoPE's angles in the registry's harness.
const ropeTheta = 500000

// angles returns RoPE's table for the rows of the segments: cosines, then sines, per table head.
func angles(o op.RoPE, segments []Segment) []float32 {
	var table []float32
	half := o.HeadDim / 2
	row := make([]float32, o.HeadDim)
	for _, s := range segments {
		for r := range s.Rows {
			for i := range half {
				sin, cos := math.Sincos(float64(s.Pos+r) * math.Pow(ropeTheta, -float64(i)/float64(half)))
				row[i], row[half+i] = float32(cos), float32(sin)
			}
			for range max(1, o.TableHeads) {
				table = append(table, row...)
			}
		}
	}
	return table
}

// scales has the byte offsets of a block's FP16 scale and minimum; -1 for a type without a minimum.
// The rest of a block may have any bits. Center is the mean of the scale's factor relative to the
// minimum's: with minimum = scale * center, values are centered at 0 like real weights. Size is the
// standard deviation at a scale of 1.
//
// Source: block layouts of GGUF (ggml's block_q* structures), see package dtype.
var scales = map[dtype.Type]struct {
	scale, minimum int
	center, size   float64
}{
	dtype.Q8_0: {0, -1, 0, 74},
	dtype.Q4_0: {0, -1, 0, 4.6},
	dtype.Q4_1: {0, 2, -7.5, 4.6},
	dtype.Q5_0: {0, -1, 0, 9.2},
	dtype.Q5_1: {0, 2, -15.5, 9.2},
	dtype.Q4_K: {0, 2, 7.5, 280},
	dtype.Q5_K: {0, 2, 15.5, 570},
	dtype.Q6_K: {208, -1, 0, 1360},
}

// quantized returns blocks of random bits whose values have about the given standard deviation.
func quantized(rng *rand.Rand, typ dtype.Type, n int, deviation float32) (operand, error) {
	at, ok := scales[typ]
	elems, size := typ.Block()
	if !ok || n%elems != 0 {
		return operand{}, fmt.Errorf("gatetest: %d elements are no whole number of blocks of %s", n, typ)
	}
	w := operand{bytes: make([]byte, typ.Bytes(n)), values: make([]float32, n)}
	for i := range w.bytes {
		w.bytes[i] = byte(rng.Uint32())
	}
	half := func(b []byte, v float64) {
		var h [1]dtype.Float16
		dtype.F32ToF16(h[:], []float32{float32(v)})
		copy(b, dtype.AsBytes(h[:]))
	}
	for b := 0; b < len(w.bytes); b += size {
		scale := float64(deviation) / at.size * (0.75 + rng.Float64()/2)
		half(w.bytes[b+at.scale:][:2], scale)
		if at.minimum >= 0 {
			half(w.bytes[b+at.minimum:][:2], scale*at.center)
		}
	}
	return w, dtype.Dequantize(w.values, typ, w.bytes)
}

// kind returns the argument kind of a role.
func (r role) kind() npu.Kind {
	switch r {
	case constant:
		return npu.Const
	case cache:
		return npu.State
	case result:
		return npu.Out
	}
	return npu.In
}
