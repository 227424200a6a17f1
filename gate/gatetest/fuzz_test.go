package gatetest_test

import (
	"math"
	"slices"
	"testing"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/gate/gatetest"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// FuzzKernels runs one op of any shape that fits 2^14 multiply-adds on one of the sets of kernels
// that this machine can execute, with one thread or two, and compares it with the oracle.
// CheckKernel fills memory that must not be read with NaN and guards the bytes after the result.
func FuzzKernels(f *testing.F) {
	for kind := range uint8(len(fuzzOps)) {
		for kernels := range uint8(2 * len(cpu.KernelNames())) {
			f.Add(kind, kernels, kind+kernels, uint8(17),
				uint16(3+kernels), uint16(65), uint16(33), uint16(7), uint64(kind))
			f.Add(kind, kernels, 5*kind+kernels, uint8(kind*29),
				uint16(17), uint16(31), uint16(16), uint16(40), uint64(kernels))
		}
	}
	var devices []*cpu.Device
	for _, name := range cpu.KernelNames() {
		for threads := range 2 {
			d, err := cpu.Open(&cpu.Options{Threads: 1 + threads, Kernels: name})
			if err != nil {
				f.Logf("not on this machine: %v", err)
				break
			}
			devices = append(devices, d)
		}
	}
	f.Cleanup(func() {
		for _, d := range devices {
			if err := d.Close(); err != nil {
				f.Error(err)
			}
		}
	})
	f.Fuzz(func(t *testing.T, kind, kernels, types, flags uint8, a, b, c, d uint16, seed uint64) {
		dev := devices[int(kernels)%len(devices)]
		s := shape{a: int(a), b: int(b), c: int(c), d: int(d), flags: int(flags)}
		o := fuzzOps[int(kind)%len(fuzzOps)](&s)
		opts := &gatetest.Options{Seed: seed % 1024, Segments: s.segments, Picks: s.picks}
		for i, operand := range o.Operands() {
			n := int(types) + i*(1+int(flags>>4)) // which of the operand's types
			typ := operand.Types[n%len(operand.Types)]
			if block, _ := typ.Block(); operand.Shape[len(operand.Shape)-1]%block != 0 {
				typ = operand.Types[n%min(3, len(operand.Types))] // plain
			}
			opts.Types = append(opts.Types, typ)
		}
		opts.Tolerances = func(o op.Op, out dtype.Type) (gate.Tolerance, bool) {
			return fuzzTolerance(o, opts.Types, s.past, out), true
		}
		r, err := gatetest.CheckKernel(t.Context(), dev, o, opts)
		switch {
		case err != nil: // a refusal too: the types are those that the op allows
			t.Fatalf("%s%+v %v: %v", o.Kind(), o, opts.Types, err)
		case wrong(r):
			t.Error(r)
		}
	})
}

// wrong reports whether a result is outside its bounds. That zeros would be inside them too is no
// fault here: the few outputs of a small shape can all be almost zero by chance.
func wrong(r gate.Report) bool {
	return slices.ContainsFunc(r.Reasons, func(reason gate.Reason) bool { return reason.Metric != "blind bound" })
}

// shape returns the dimensions of an op from an input's numbers.
type shape struct {
	a, b, c, d, flags int

	segments []gatetest.Segment
	picks    int
	past     int // positions before the first row of the last segment
}

// multiplyAdds bounds the work of one execution.
const multiplyAdds = 1 << 14

// below returns a dimension from 1 to most that leaves the product with others at most
// multiplyAdds.
func below(x, most, others int) int { return 1 + x%max(1, min(most, multiplyAdds/others)) }

func (s *shape) flag(bit int) bool { return s.flags>>bit&1 == 1 }

// rows returns a number of rows for an op whose rows have width elements, in one segment or more.
func (s *shape) rows(width int) int {
	n := below(s.a, 300, width)
	s.segments = []gatetest.Segment{{Rows: n}}
	return n
}

// open returns op.Rows, of two segments with a past.
func (s *shape) open(width int) int {
	n := below(s.a, 64, width)
	s.past = s.d % min(64, max(1, multiplyAdds/width/n))
	s.segments = []gatetest.Segment{{Rows: n, Pos: s.past}}
	if s.flag(3) && n > 1 {
		s.segments = []gatetest.Segment{{Rows: n / 2, Pos: s.d % 3}, {Rows: n - n/2, Pos: s.past}}
	}
	return op.Rows
}

// heads returns heads, heads of keys and values, and their width.
func (s *shape) heads() (heads, kv, dim int) {
	kv = 1 + s.c%3
	return kv * (1 + s.c/3%4), kv, 2 * below(s.b, 64, 1)
}

var fuzzOps = []func(s *shape) op.Op{
	func(s *shape) op.Op { // plain weights
		n := below(s.c, 130, 1)
		k := below(s.b, 700, n)
		return op.MatMul{M: s.rows(k * n), K: k, N: n, TransB: !s.flag(0)}
	},
	func(s *shape) op.Op { // blocks of 32 and of 256 fit
		n := below(s.c, 64, 32)
		k := 32 * below(s.b, 16, n*32)
		if s.flag(1) {
			k = 256
		}
		return op.MatMul{M: s.rows(k * n), K: k, N: n, TransB: true}
	},
	func(s *shape) op.Op { // many rows
		m := below(s.a, 300, 1)
		s.segments = []gatetest.Segment{{Rows: m}}
		n := below(s.c, 64, m)
		return op.MatMul{M: m, K: below(s.b, 700, m*n), N: n, TransB: !s.flag(0)}
	},
	func(s *shape) op.Op {
		o := op.RMSNorm{Width: below(s.b, 1100, 1), Eps: 1e-5}
		if s.flag(0) {
			o.Heads = 1 + s.c%7
		}
		o.Rows = s.rows(o.Width * max(1, o.Heads))
		return o
	},
	func(s *shape) op.Op {
		w := below(s.b, 1100, 1)
		return op.LayerNorm{Rows: s.rows(w), Width: w, Eps: 1e-5}
	},
	func(s *shape) op.Op {
		heads, _, dim := s.heads()
		o := op.RoPE{Heads: heads, HeadDim: dim}
		if s.flag(0) {
			o.TableHeads = heads
		}
		o.Rows = s.open(heads * dim)
		return o
	},
	func(s *shape) op.Op { w := below(s.b, 1100, 1); return op.SiLUMul{Rows: s.rows(w), Width: w} },
	func(s *shape) op.Op {
		w := below(s.b, 1100, 1)
		return op.GELU{Rows: s.rows(w), Width: w, Tanh: s.flag(0)}
	},
	func(s *shape) op.Op {
		w := below(s.b, 1100, 1)
		return op.Add{Rows: s.rows(w), Width: w, Broadcast: s.flag(0)}
	},
	func(s *shape) op.Op { w := below(s.b, 1100, 1); return op.Cast{Rows: s.rows(w), Width: w} },
	func(s *shape) op.Op {
		w := below(s.b, 600, 1)
		if s.flag(1) {
			w = 32 * (1 + s.b%16)
		}
		return op.Embed{Rows: s.rows(w), Vocab: below(s.c, 70, w), Width: w}
	},
	func(s *shape) op.Op {
		w := below(s.b, 600, 1)
		rows := s.rows(w)
		s.picks = 1 + s.c%rows
		return op.Pick{Picks: s.picks, Rows: rows, Width: w}
	},
	func(s *shape) op.Op {
		w := below(s.b, 600, 1)
		from := s.c % w
		return op.Slice{Rows: s.rows(w), Width: w, From: from, N: 1 + s.d%(w-from)}
	},
	func(s *shape) op.Op {
		widths := []int{1 + s.b%200, 1 + s.c%200, 1 + s.d%200}[:1+s.flags%3]
		return op.Concat{Rows: s.rows(600), Widths: widths}
	},
	func(s *shape) op.Op {
		dims := []int{1 + s.a%16, 1 + s.b%16, 1 + s.c%8, 1 + s.d%8}
		perms := [][]int{
			{1, 0}, {0, 2, 1}, {1, 0, 2}, {2, 1, 0}, {2, 0, 1}, {0, 2, 1, 3}, {3, 1, 0, 2}, {3, 2, 1, 0},
		}
		perm := perms[s.flags%len(perms)]
		return op.Permute{Shape: dims[:len(perm)], Perm: perm}
	},
	func(s *shape) op.Op {
		heads, kv, dim := s.heads()
		o := op.Attention{Heads: heads, KVHeads: kv, HeadDim: dim, HeadFirst: s.flag(0)}
		if o.HeadFirst && s.flag(1) && dim%2 == 0 {
			o.Split = 2
		}
		o.Rows = below(s.a, 60, heads*dim*8)
		s.segments = []gatetest.Segment{{Rows: o.Rows}}
		return o
	},
	func(s *shape) op.Op {
		heads, kv, dim := s.heads()
		rows := s.open(heads * dim * 8)
		return op.Attention{Rows: rows, Heads: heads, KVHeads: kv, HeadDim: dim, Cached: true}
	},
	func(s *shape) op.Op {
		_, kv, dim := s.heads()
		return op.KVWrite{Rows: s.open(kv * dim), KVHeads: kv, HeadDim: dim}
	},
}

// The bounds of FuzzKernels catch every wrong device that the kernel gate is to catch, but for one
// that adds noise of the size of a mean error: these bounds are for every element.
func TestFuzzKernelsCatchesAdversaries(t *testing.T) {
	for _, a := range gatetest.Adversaries() {
		if a.Meant[gatetest.GateKernel] == "" || a.Name == "noise" {
			continue
		}
		for _, p := range a.Probes {
			for _, typ := range []dtype.Type{dtype.F32, dtype.BF16} {
				past := 0
				for _, s := range p.Segments {
					past = max(past, s.Pos)
				}
				tolerances := func(o op.Op, out dtype.Type) (gate.Tolerance, bool) {
					return fuzzTolerance(o, []dtype.Type{typ, typ, typ, typ}, past, out), true
				}
				opts := &gatetest.Options{
					Activations: typ, Weights: typ, Cache: typ, Segments: p.Segments, Tolerances: tolerances,
				}
				r, err := gatetest.CheckKernel(t.Context(), a.Wrap(open(t, "go"), tolerances), p.Op, opts)
				if err != nil {
					t.Fatal(err)
				}
				if !wrong(r) {
					t.Errorf("%s on %s%+v %v is not caught", a.Name, p.Op.Kind(), p.Op, typ)
				}
			}
		}
	}
}

// fuzzTolerance bounds every element. Operands are those of CheckKernel: normal numbers, of which
// one in 10^9 exceeds largest standard deviations. The oracle computes in FP32 too.
//
// A sum of n products with standard deviation σ has an FP32 error of at most λ² u sqrt(n Σx²) in
// any order, with λ = 8 but for a probability of 2n exp(-λ²/2) = n 2.5e-14 (partial sums and
// rounding errors have random signs, Hoeffding's inequality for both; u = 2^-24). Of normal numbers
// Σx² is at most n + 12 sqrt(n) + 72, of products of two at most largest² times that, or n + 24
// sqrt(n) + 1296.
func fuzzTolerance(o op.Op, types []dtype.Type, past int, out dtype.Type) gate.Tolerance {
	const u, lambda, largest = 0x1p-24, 8.0, 6.0
	squares := func(n int) float64 {
		k, root := float64(n), math.Sqrt(float64(n))
		return min(largest*largest*(k+12*root+72), k+24*root+1296)
	}
	// The error of a sum of n products.
	sum := func(n int, sigma float64) float64 {
		return lambda * lambda * u * sigma * math.Sqrt(float64(n)*squares(n))
	}
	// The error of a sum whose terms have errors of random sign, a share e of each.
	share := func(n int, sigma, e float64) float64 { return lambda * e * sigma * math.Sqrt(squares(n)) }

	tol := gate.Tolerance{Rtol: u, Note: "derived in FuzzKernels"}
	switch out {
	case dtype.BF16:
		tol.Rtol = 0x1p-8
	case dtype.F16:
		tol.Rtol = 0x1p-11
	}
	switch o := o.(type) {
	case op.MatMul:
		sigma := 1 / float64(o.K) // 1/sqrt(K) for both operands
		if o.M == 1 {
			sigma = 16
		}
		tol.Atol = 2 * sum(o.K, sigma)
		if types[1].Quantized() { // activations are off by 2^-16 of the largest of 32
			tol.Atol += share(o.K, sigma, largest*0x1p-16)
		}
		switch {
		case types[1].Quantized() && !o.TransB: // such weights are copied in BF16
			tol.Atol += share(o.K, sigma, 0x1p-8)
		case types[1].Quantized() && o.M > 1:
			// Matrix units make two BF16 numbers of a weight, or one if the result is BF16 too.
			e := 0x1p-17
			if out == dtype.BF16 {
				e = 0x1p-8
			}
			tol.Atol += share(o.K, sigma, e)
		}
	case op.RMSNorm: // relative errors alone: of the sum of squares, of the root, of two products
		tol.Rtol += u * (8 + 2*float64(o.Width))
	case op.LayerNorm: // the mean is off by n u of the largest, which a small variance makes larger
		deviation := 0.25
		if o.Width < 64 {
			deviation = math.Sqrt(o.Eps)
		}
		tol.Rtol += u * (8 + 2*float64(o.Width))
		tol.Atol = 2 * u * (4 + math.Sqrt(float64(o.Width))) * largest * largest / deviation
	case op.RoPE:
		tol.Atol = 8 * u * largest
	case op.SiLUMul, op.GELU, op.Add:
		tol.Atol = 16 * u * largest * largest
	case op.Attention:
		// A score is off by e, so a weight of the average is by a share of 2e, and the average by
		// 2e of the largest value.
		e := 2 * sum(o.HeadDim, 1) / math.Sqrt(float64(o.HeadDim))
		if slices.Contains(types, dtype.BF16) { // matrix units take queries and weights as two BF16 numbers
			e += share(o.HeadDim, 1, 0x1p-17)/math.Sqrt(float64(o.HeadDim)) + 0x1p-17
		}
		tol.Atol = 2*e*largest + 2*sum(64+past, 1)
	}
	if out == dtype.F16 {
		tol.Atol += 0x1p-25 // half a step of its subnormal numbers
	}
	return tol
}
