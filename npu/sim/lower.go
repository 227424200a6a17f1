package sim

import (
	"fmt"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// operands returns the operands of launch i.
func (l *lowering) operands(i int) (x []operand) {
	n := &l.e.p.Launches[i]
	for _, v := range n.Args {
		o := operand{slot: v.Arg, view: npu.View{Offset: v.Offset, Shape: v.Shape, Stride: v.Stride}}
		a := &l.e.p.Args[v.Arg]
		if s, ok := l.scratchRows[v.Arg]; ok && v.Offset < a.ScratchRows*(op.Size{}).Elements(a.Shape[1:]) {
			o.slot = s // validation rejects views that span scratch rows and weight
		}
		x = append(x, o)
	}
	return x
}

// wrote records the operands that launch i writes. It invalidates the cached quantized activations
// if they are overwritten.
func (l *lowering) wrote(i int) {
	n := &l.e.p.Launches[i]
	for j, x := range l.operands(i) {
		if !n.Op.Operands()[j].Write {
			continue
		}
		if x.slot < len(l.e.written) {
			l.e.written[x.slot] = true
		}
		if x.slot == l.source.slot {
			l.quantized = false
		}
	}
}

// cascade lowers launches i and i+1 together if they are a GEMV and the residual addition of one
// fused kernel, as in the decode programs. It reports whether they are. FP32 partial sums travel
// over the cascade, the head adds the residual, and only the sum is rounded, to nearest. The result
// of the GEMV alone is also stored if the program has memory for it, so that taps can read it.
func (l *lowering) cascade(i int) bool {
	if i+1 == len(l.e.p.Launches) {
		return false
	}
	this, next := &l.e.p.Launches[i], &l.e.p.Launches[i+1]
	o, product := this.Op.(op.MatMul)
	sum, add := next.Op.(op.Add)
	if !product || !add || o.M != 1 || this.Mapping.Fused == "" ||
		this.Mapping.Fused != next.Mapping.Fused {
		return false
	}
	x, z := l.operands(i), l.operands(i+1)
	residual := z[1]
	if !l.same(z[0], x[2]) {
		if residual = z[0]; !l.same(z[1], x[2]) {
			return false
		}
	}
	wide := l.temp(x[2].slot, dtype.F32, 1, o.N)
	l.onHost(i, o, x[0], x[1], wide)
	l.onHost(i+1, sum, wide, residual, z[2])
	l.onHost(i, op.Cast{Rows: 1, Width: o.N}, wide, x[2])
	return true
}

// launch adds the steps of launch i.
func (l *lowering) launch(i int) error {
	n := &l.e.p.Launches[i]
	x := l.operands(i)
	rows := func(run func(f *frame, m []matrix)) error {
		return l.on(i, func(f *frame) error {
			m := make([]matrix, len(x))
			for j := range x {
				m[j] = f.matrix(x[j])
			}
			run(f, m)
			return f.ctx.Err()
		})
	}
	switch o := n.Op.(type) {
	case op.MatMul:
		return l.matMul(i, o, x[0], x[1], x[2])
	case op.Attention:
		if !o.Cached {
			return l.attention(i, o, n.Mapping, x)
		}
		l.onHost(i, o, x...) // no published kernel: FP32 sums, rounded to nearest once
		return nil
	case op.RMSNorm:
		return rows(func(f *frame, m []matrix) { f.rmsNorm(&m[0], &m[1], &m[2], o.Width, float32(o.Eps)) })
	case op.LayerNorm:
		return rows(func(f *frame, m []matrix) { f.layerNorm(&m[0], &m[1], &m[2], &m[3], float32(o.Eps)) })
	case op.RoPE:
		return rows(func(f *frame, m []matrix) { f.rope(&m[0], &m[1], &m[2], o.HeadDim) })
	case op.Add:
		return rows(func(f *frame, m []matrix) { f.add(&m[0], &m[1], &m[2]) })
	case op.SiLUMul:
		return rows(func(f *frame, m []matrix) { f.siluMul(&m[0], &m[1], &m[2]) })
	case op.GELU:
		if !o.Tanh {
			return fmt.Errorf("GELU with erf is not supported: the array has only the tanh approximation")
		}
		return rows(func(f *frame, m []matrix) { f.gelu(&m[0], &m[1]) })
	case op.Cast:
		return rows(func(f *frame, m []matrix) { f.cast(&m[0], &m[1]) })
	}
	l.onHost(i, n.Op, x...) // data movement only
	return nil
}

// matMul quantizes the activations and lets the software device multiply them by the quantized
// weight. A GEMV uses both operands unchanged: the array computes it on the vector unit in FP32 and
// rounds to nearest once.
func (l *lowering) matMul(i int, o op.MatMul, a, w, y operand) error {
	m := l.e.p.Launches[i].Mapping
	if o.M == 1 && (m.Variant == "" || m.Variant == "gemv" || m.Variant == "cascade") {
		l.onHost(i, o, a, w, y)
		return nil
	}
	if !l.quantized || !l.same(l.source, a) {
		q := l.temp(a.slot, dtype.BF16, o.M, o.K)
		if err := l.on(i, func(f *frame) error {
			src, dst := f.matrix(a), f.matrix(q)
			f.quantize(dst.bf, src.bf, form{stride: src.stride, rows: src.rows, width: src.width,
				transposed: true})
			return f.ctx.Err()
		}); err != nil {
			return err
		}
		l.quantized, l.source, l.activation = true, a, q
	}
	q, err := l.weight(i, o, w)
	if err != nil {
		return err
	}
	if m.Variant == "direct" && l.e.slots[y.slot].typ == dtype.BF16 { // FP32 output tiles are never rounded
		step := 32
		if len(m.Tile) > 2 && m.Tile[2] > 0 {
			step = m.Tile[2]
		}
		return l.direct(i, o, step, l.activation, q, y)
	}
	l.onHost(i, o, l.activation, q, y)
	return nil
}

// weight returns w quantized for the matrix unit.
func (l *lowering) weight(i int, o op.MatMul, w operand) (operand, error) {
	f := form{offset: w.view.Offset, stride: w.view.Stride, rows: o.K, width: o.N, transposed: o.TransB}
	if o.TransB {
		f.rows, f.width = o.N, o.K
	}
	if f.stride == 0 {
		f.stride = f.width
	}
	s := slot{kind: slotForm, typ: dtype.BF16, shape: []int{f.rows, f.width}, form: f,
		arg: l.e.slots[w.slot].arg}
	if l.e.p.Args[s.arg].Kind == npu.Const && l.e.slots[w.slot].kind == slotArg {
		for j, t := range l.e.slots {
			if t.kind == slotForm && t.arg == s.arg && t.form == f {
				return operand{slot: j}, nil
			}
		}
		return operand{slot: l.slot(s)}, nil
	}
	// Written by a program, so it is quantized in every run.
	s.kind = slotTemp
	q := operand{slot: l.slot(s)}
	return q, l.on(i, func(fr *frame) error {
		src, dst := fr.matrix(operand{slot: w.slot}), fr.matrix(q)
		fr.quantize(dst.bf, src.bf, f)
		return fr.ctx.Err()
	})
}

// same reports whether a and b are the same elements.
func (l *lowering) same(a, b operand) bool {
	return a.slot == b.slot &&
		a.view.Matrix(l.e.slots[a.slot].shape) == b.view.Matrix(l.e.slots[b.slot].shape)
}
