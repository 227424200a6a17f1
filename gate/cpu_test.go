package gate_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// measured are the ops and shapes that the table of CPU tolerances was measured on, and is held to:
// one row and many, widths of the supported models and odd ones.
var measured = []op.Op{
	op.MatMul{M: 1, K: 64, N: 512, TransB: true}, op.MatMul{M: 1, K: 8192, N: 256,
		TransB: true}, op.MatMul{M: 3, K: 577, N: 200, TransB: true},
	op.MatMul{M: 64, K: 2048, N: 128, TransB: true}, op.MatMul{M: 64, K: 8192, N: 48,
		TransB: true}, op.MatMul{M: 17, K: 896, N: 100},
	op.RMSNorm{Rows: 1, Width: 577, Eps: 1e-5}, op.RMSNorm{Rows: 64, Width: 2048,
		Eps: 1e-5}, op.RMSNorm{Rows: 7, Width: 128, Heads: 8, Eps: 1e-6},
	op.LayerNorm{Rows: 3, Width: 577, Eps: 1e-5}, op.LayerNorm{Rows: 64, Width: 768, Eps: 1e-5},
	op.RoPE{Rows: 5, Heads: 3, HeadDim: 64}, op.RoPE{Rows: 64, Heads: 14, HeadDim: 128},
	op.SiLUMul{Rows: 1, Width: 577}, op.SiLUMul{Rows: 64, Width: 4864},
	op.GELU{Rows: 3, Width: 577}, op.GELU{Rows: 64, Width: 3072}, op.GELU{Rows: 3, Width: 577,
		Tanh: true}, op.GELU{Rows: 64, Width: 3072, Tanh: true},
	op.Add{Rows: 3, Width: 577}, op.Add{Rows: 64, Width: 2048}, op.Add{Rows: 64, Width: 896,
		Broadcast: true},
	op.Attention{Rows: 1, Heads: 4, KVHeads: 4, HeadDim: 64}, op.Attention{Rows: 100, Heads: 7,
		KVHeads: 1, HeadDim: 64},
	op.Attention{Rows: 200, Heads: 4, KVHeads: 2, HeadDim: 128},
	op.Cast{Rows: 3, Width: 577},
	op.Embed{Rows: 5, Vocab: 11, Width: 577}, op.Pick{Picks: 2, Rows: 5,
		Width: 577}, op.Permute{Shape: []int{5, 3, 64}, Perm: []int{1, 0, 2}},
	op.Slice{Rows: 5, Width: 577, From: 3, N: 500}, op.Concat{Rows: 5, Widths: []int{64, 1, 9}},
}

// Every kernel variant of the CPU device is within the table's tolerances on the shapes that the
// table was measured on. With -v the test prints the measured errors.
func TestCPUKernelsAreWithinTheTable(t *testing.T) {
	type errors struct{ l1, row, peak float64 }
	wants := map[string][]float64{} // references do not depend on the kernels
	most := map[string]map[dtype.Type]errors{}
	names := cpu.KernelNames()
	if name := os.Getenv(cpu.KernelsVariable); name != "" {
		names = []string{name} // the others have a run of their own
	}
	for _, kernels := range names {
		d, err := cpu.Open(&cpu.Options{Threads: 2, Kernels: kernels})
		if err != nil {
			t.Logf("not here: %v", err)
			continue
		}
		for i, o := range measured {
			for _, typ := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F16} {
				if !allows(o, typ) {
					continue
				}
				tol, ok := gate.CPU(o, typ)
				if !ok {
					t.Fatalf("no tolerance for %s in %v", o.Kind(), typ)
				}
				got, in, width := runCPU(t, d, o, typ, uint64(i))
				name := fmt.Sprint(i, typ)
				if wants[name] == nil {
					wants[name] = reference(o, in)
				}
				want := wants[name]
				r, err := gate.Check(got, want, width, tol)
				if err != nil {
					t.Fatal(err)
				}
				if !r.OK() {
					r.Name = fmt.Sprintf("%s, %s%+v %v", kernels, o.Kind(), o, typ)
					t.Errorf("%v", r)
				}
				if most[o.Kind()] == nil {
					most[o.Kind()] = map[dtype.Type]errors{}
				}
				m, v := r.Metrics, most[o.Kind()][typ]
				most[o.Kind()][typ] = errors{max(v.l1, m.MeanRelL1), max(v.row, m.MaxRowL1),
					max(v.peak, m.Peak)}
			}
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	for kind, by := range most {
		f, h := by[dtype.F32], by[dtype.BF16]
		t.Logf("%q: {%.1e, %.1e, %.1e, %.1e, %.1e}, (peak in BF16 %.1e)", kind, f.l1, f.row, f.peak, h.l1,
			h.row, h.peak)
	}
}

// allows reports whether an op may have all its floating-point operands of a type.
func allows(o op.Op, typ dtype.Type) bool {
	for _, operand := range o.Operands() {
		ok := false
		for _, t := range operand.Types {
			ok = ok || t == typ || t == dtype.I32
		}
		if !ok {
			return false
		}
	}
	return true
}

// runCPU runs an op on seeded random operands of one type and returns the device's result and
// the operands that it read.
func runCPU(t *testing.T, d npu.Device, o op.Op, typ dtype.Type, seed uint64) (got []float32,
	in [][]float64, width int) {
	t.Helper()
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(seed, 1))
	p := npu.NewProgram("measure")
	var refs []npu.Ref
	var bufs []npu.Buffer
	for _, operand := range o.Operands() {
		kind, ty := npu.In, typ
		if operand.Write {
			kind = npu.Out
		}
		if operand.Types[0] == dtype.I32 {
			ty = dtype.I32
		}
		n := (op.Size{}).Elements(operand.Shape)
		buf, err := d.Alloc(ctx, ty.Bytes(n))
		if err != nil {
			t.Fatal(err)
		}
		b := buf.Bytes()
		if operand.Write {
			for i := range b {
				b[i] = 0xff // NaN in every type, so unwritten elements fail
			}
			got, width = make([]float32, n), operand.Shape[len(operand.Shape)-1]
		} else {
			in = append(in, fill(b, ty, n, rng))
		}
		refs, bufs = append(refs, p.Arg(kind, operand.Name, ty, operand.Shape...)), append(bufs, buf)
	}
	p.Launch("op", o, refs...)
	exec, err := d.Load(ctx, p)
	if err != nil {
		t.Fatalf("%s%+v %v: %v", o.Kind(), o, typ, err)
	}
	if err := d.Submit(ctx, []npu.Run{{Exec: exec, Args: bufs}}); err != nil {
		t.Fatal(err)
	}
	if err := dtype.Dequantize(got, typ, bufs[len(bufs)-1].Bytes()[:typ.Bytes(len(got))]); err != nil {
		t.Fatal(err)
	}
	for _, b := range bufs {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	return got, in, width
}

// fill writes standard normal values (small indices for integers) and returns them as the type
// holds them.
func fill(b []byte, typ dtype.Type, n int, rng *rand.Rand) []float64 {
	values := make([]float64, n)
	for i := range values {
		switch v := float32(rng.NormFloat64()); typ {
		case dtype.F32:
			dtype.Float32s(b)[i], values[i] = v, float64(v)
		case dtype.BF16:
			h := dtype.FromFloat32(v)
			dtype.BFloat16s(b)[i], values[i] = h, float64(h.Float32())
		case dtype.F16:
			dtype.F32ToF16(dtype.Float16s(b)[i:i+1], []float32{v})
			values[i] = float64(dtype.Float16s(b)[i].Float32())
		case dtype.I32:
			dtype.Int32s(b)[i] = int32(i * 7 % 5)
			values[i] = float64(i * 7 % 5)
		}
	}
	return values
}

// reference computes an op in float64, from its definition in package op.
func reference(o op.Op, in [][]float64) []float64 {
	var y []float64
	each := func(f func(i int, v float64) float64) []float64 {
		for i, v := range in[0] {
			y = append(y, f(i, v))
		}
		return y
	}
	switch o := o.(type) {
	case op.MatMul:
		for m := range o.M {
			a := in[0][m*o.K:][:o.K]
			for n := range o.N {
				sum := 0.0
				for k, v := range a {
					if o.TransB {
						sum += v * in[1][n*o.K+k]
					} else {
						sum += v * in[1][k*o.N+n]
					}
				}
				y = append(y, sum)
			}
		}
	case op.RMSNorm:
		for at := 0; at < len(in[0]); at += o.Width {
			sum := 0.0
			for _, v := range in[0][at:][:o.Width] {
				sum += v * v
			}
			for i, v := range in[0][at:][:o.Width] {
				y = append(y, v/math.Sqrt(sum/float64(o.Width)+o.Eps)*in[1][i])
			}
		}
	case op.LayerNorm:
		for at := 0; at < len(in[0]); at += o.Width {
			row := in[0][at:][:o.Width]
			mean, square := 0.0, 0.0
			for _, v := range row {
				mean += v / float64(o.Width)
			}
			for _, v := range row {
				square += (v - mean) * (v - mean) / float64(o.Width)
			}
			for i, v := range row {
				y = append(y, (v-mean)/math.Sqrt(square+o.Eps)*in[1][i]+in[2][i])
			}
		}
	case op.RoPE:
		y = make([]float64, len(in[0]))
		half := o.HeadDim / 2
		for at := 0; at < len(y); at += o.HeadDim {
			table := in[1][at/(o.Heads*o.HeadDim)*o.HeadDim:]
			for i := range half {
				a, b, cos, sin := in[0][at+i], in[0][at+i+half], table[i], table[i+half]
				y[at+i], y[at+i+half] = a*cos-b*sin, b*cos+a*sin
			}
		}
	case op.SiLUMul:
		return each(func(i int, v float64) float64 { return v / (1 + math.Exp(-v)) * in[1][i] })
	case op.GELU:
		if o.Tanh {
			return each(func(_ int, v float64) float64 {
				return v / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
			})
		}
		return each(func(_ int, v float64) float64 { return v / 2 * (1 + math.Erf(v/math.Sqrt2)) })
	case op.Add:
		return each(func(i int, v float64) float64 { return v + in[1][i%len(in[1])] })
	case op.Attention:
		return attention(o, in[0], in[1], in[2])
	case op.Cast:
		return in[0]
	case op.Embed, op.Pick:
		width := o.Operands()[2].Shape[1]
		for _, i := range in[0] {
			y = append(y, in[1][int(i)*width:][:width]...)
		}
	case op.Slice:
		for r := range o.Rows {
			y = append(y, in[0][r*o.Width+o.From:][:o.N]...)
		}
	case op.Concat:
		for r := range o.Rows {
			for i, w := range o.Widths {
				y = append(y, in[i][r*w:][:w]...)
			}
		}
	case op.Permute: // of the first two dimensions, the only one measured
		for b := range o.Shape[1] {
			for a := range o.Shape[0] {
				y = append(y, in[0][(a*o.Shape[1]+b)*o.Shape[2]:][:o.Shape[2]]...)
			}
		}
	default:
		panic("no reference for " + o.Kind())
	}
	return y
}

// attention is causal, with rows and heads side by side.
func attention(o op.Attention, q, k, v []float64) []float64 {
	d := o.HeadDim
	y := make([]float64, len(q))
	for r := range o.Rows {
		for h := range o.Heads {
			group := h / (o.Heads / o.KVHeads)
			at := (r*o.Heads + h) * d
			scores, highest, sum := make([]float64, r+1), math.Inf(-1), 0.0
			for s := range scores {
				for i := range d {
					scores[s] += q[at+i] * k[(s*o.KVHeads+group)*d+i] * o.Softmax()
				}
				highest = max(highest, scores[s])
			}
			for s := range scores {
				scores[s] = math.Exp(scores[s] - highest)
				sum += scores[s]
			}
			for s, p := range scores {
				for i := range d {
					y[at+i] += p / sum * v[(s*o.KVHeads+group)*d+i]
				}
			}
		}
	}
	return y
}
