package sim

import (
	"strconv"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// Parts of kernels that the software device computes: programs of it, made when first needed and kept.

// helperKey says which.
type helperKey struct {
	kind       string // "direct", "scores", "values"
	m, k, n    int
	step       int
	transposed bool
}

// helper runs a helper program with these buffers; a nil one is for the software device to provide.
func (f *frame) helper(key helperKey, build func(*npu.Program), args ...npu.Buffer) error {
	exec, ok := f.d.helpers[key]
	if !ok {
		p := npu.NewProgram(key.kind)
		build(p)
		var err error
		if exec, err = f.d.host.Load(f.ctx, p); err != nil {
			return err
		}
		f.d.helpers[key] = exec
	}
	return f.d.host.Submit(f.ctx, []npu.Run{{Exec: exec, Args: args}})
}

// name names the launch of a helper that begins at element i.
func name(what string, i int) string { return what + strconv.Itoa(i) }

// directRows is how many rows a direct GEMM computes at a time: their partial sums should stay in a cache.
const directRows = 128

// direct is the low tier of a GEMM: the tile of results is BF16 and rounded to nearest each time that another step elements of K have been
// added. (The documentation says once for each k tile in L2; the published errors, from 1.0e-2 at K = 512 to 1.9e-2 at 8192, say each k
// tile in L1.)
func (l *lowering) direct(launch int, o op.MatMul, step int, a, w, y operand) error {
	block := min(directRows, o.M)
	x := l.temp(a.slot, dtype.BF16, block, o.K)
	c := l.temp(a.slot, dtype.BF16, block, o.N)
	return l.on(launch, func(f *frame) error {
		src, xs, cs, dst := f.matrix(a), f.matrix(x), f.matrix(c), f.matrix(y)
		for from := 0; from < o.M; from += block {
			n := min(block, o.M-from)
			copy(xs.bf, src.bf[from*o.K:][:n*o.K])
			key := helperKey{"direct", n, o.K, o.N, step, o.TransB}
			if err := f.helper(key, key.direct, f.bufs[x.slot], f.bufs[w.slot], f.bufs[c.slot], f.bufs[c.slot], nil); err != nil {
				return err
			}
			for r := range n {
				copy(dst.bf[(from+r)*dst.stride:][:o.N], cs.bf[r*o.N:][:o.N])
			}
		}
		return nil
	})
}

// direct builds a[m, k] w = c, in steps along k.
func (h helperKey) direct(p *npu.Program) {
	wide := []int{h.k, h.n}
	if h.transposed {
		wide = []int{h.n, h.k}
	}
	p.In("a", dtype.BF16, h.m, h.k)
	p.Const("w", dtype.BF16, wide...)
	read := p.In("c read", dtype.BF16, h.m, h.n)
	written := p.Scratch("c", dtype.BF16, h.m, h.n)
	part := p.Scratch("part", dtype.F32, h.m, h.n)
	for k := 0; k < h.k; k += h.step {
		o := op.MatMul{M: h.m, K: min(h.step, h.k-k), N: h.n, TransB: h.transposed}
		av := npu.View{Arg: 0, Offset: k, Shape: []int{h.m, o.K}, Stride: h.k}
		wv := npu.View{Arg: 1, Offset: k * h.n, Shape: []int{o.K, h.n}}
		if h.transposed {
			wv = npu.View{Arg: 1, Offset: k, Shape: []int{h.n, o.K}, Stride: h.k}
		}
		y := npu.View{Arg: 4}
		if k == 0 {
			y.Arg = 3
		}
		p.Launches = append(p.Launches, npu.Launch{Name: name("k", k), Op: o, Args: []npu.View{av, wv, y}})
		if k > 0 {
			p.Launch(name("sum", k), op.Add{Rows: h.m, Width: h.n}, read, part, written)
		}
	}
}
