package gatetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// Case is one kernel of the conformance suite: an op with its shape, types and rows. Its name
// encodes all of these and is stable.
type Case struct {
	Name     string
	Op       op.Op
	Types    []dtype.Type
	Segments []Segment
	From     []string // the models that have the shape; empty for odd ones

	// Open uses [op.Rows] in the op if the device has AnyRows in its npu.Info, as its plans do.
	// Otherwise the program has the number.
	Open bool
}

// cases returns the suite: every op of package op over the widths of the supported models and odd
// ones; one row and many; 1 to 7 query heads per KV head; positions beyond 4096; several sessions
// in a run; every type that the ops allow.
//
// It has 1, 3 and 64 rows, and matrix products with the models' K but few columns. The full suite
// adds the models' whole shapes at 1, 64 and 2048 rows with the types of plans, up to a size that
// takes the oracle a few seconds.
func cases(full bool) []Case {
	t := &table{index: map[string]int{}}
	for _, m := range models() {
		t.model(m, []int{1, 3, 64}, short)
	}
	if full {
		for _, m := range models() {
			t.model(m, []int{1, 64, 2048}, whole, asPlans)
		}
	}
	t.products()
	t.weights()
	t.norms()
	t.pointwise()
	t.moves()
	t.ropes()
	t.attentions()
	return t.list
}

// table collects cases without duplicates.
type table struct {
	list  []Case
	index map[string]int // by name
	from  string
}

// rows are the numbers of rows for odd shapes.
func (t *table) rows() []int { return []int{1, 3, 64} }

// short limits the columns of a product: each is an independent sum, and the oracle's time is
// proportional to their number. The limit is not a multiple of any tile.
func short(_, _, n int) int { return min(n, 131) }

// whole takes all columns within maxFLOPs, and 16000 of a vocabulary.
func whole(rows, k, n int) int {
	return max(131, min(n, 16000, int(maxFLOPs)/(2*rows*k)))
}

// maxFLOPs bounds the oracle's work for one case to about two seconds.
const maxFLOPs = 2e10

// mode is a choice of types.
type mode uint8

const (
	asFP32  mode = iota // everything FP32
	asBF16              // everything BF16
	asPlans             // as in plans for the software device: FP32 on one side, BF16 on the other
)

// types returns a mode's types, with weights of the given type unless it is Invalid.
func (m mode) types(o op.Op, weights dtype.Type) []dtype.Type {
	// Products and plain attention read BF16 from a norm or RoPE and write FP32 sums; other ops do
	// the reverse.
	in, out := dtype.F32, dtype.BF16
	if a, ok := o.(op.Attention); ok && !a.Cached || o.Kind() == "MatMul" {
		in, out = out, in
	}
	list := make([]dtype.Type, len(o.Operands()))
	for i, operand := range o.Operands() {
		r := roleOf(o, i)
		typ := map[mode]dtype.Type{asFP32: dtype.F32, asBF16: dtype.BF16}[m]
		switch {
		case r == index:
			typ = dtype.I32
		case r == constant && weights != dtype.Invalid:
			typ = weights
		case m != asPlans:
		case r == constant:
			typ = dtype.BF16
		case r == cache:
			typ = dtype.F16
		case r == result:
			typ = out
		case operand.Name == "table":
			typ = dtype.F32
		default:
			typ = in
		}
		list[i] = typ
	}
	return list
}

// add adds an op in some modes; none means all.
func (t *table) add(o op.Op, segments []Segment, weights dtype.Type, modes ...mode) {
	if len(modes) == 0 {
		modes = []mode{asFP32, asBF16, asPlans}
	}
	for _, m := range modes {
		t.put(o, segments, m.types(o, weights), m != asFP32)
	}
}

// put adds a case, or adds the current model to an existing one.
func (t *table) put(o op.Op, segments []Segment, types []dtype.Type, open bool) {
	c := Case{Op: o, Types: types, Segments: segments, Open: open}
	c.Name = caseName(c)
	i, ok := t.index[c.Name]
	if !ok {
		i = len(t.list)
		t.index[c.Name] = i
		t.list = append(t.list, c)
	}
	if from := t.list[i].From; t.from != "" && !slices.Contains(from, t.from) {
		t.list[i].From = append(from, t.from)
	}
}

// caseName returns the op's kind and parameters, the types, and the segments unless all rows are
// one session's at position 0.
func caseName(c Case) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", c.Op.Kind(), strings.Trim(fmt.Sprintf("%+v", c.Op), "{}"))
	for i, t := range c.Types {
		sep := ","
		if i == 0 {
			sep = " "
		}
		fmt.Fprintf(&b, "%s%s", sep, t)
	}
	for _, s := range c.Segments {
		fmt.Fprintf(&b, " %d@%d", s.Rows, s.Pos)
	}
	if c.Open {
		b.WriteString(" open")
	}
	return b.String()
}

// model adds the kernels of a model's layer and part of its head. Columns returns the number of
// columns of a product from its rows, K and N.
func (t *table) model(m widths, numbers []int, columns func(rows, k, n int) int, modes ...mode) {
	t.from = m.name
	defer func() { t.from = "" }()
	add := func(o op.Op, segments []Segment) { t.add(o, segments, dtype.Invalid, modes...) }
	for _, rows := range numbers {
		for _, kn := range [][2]int{{m.hidden, m.q()}, {m.hidden, m.kv()}, {m.q(), m.hidden},
			{m.hidden, m.ffn}, {m.ffn, m.hidden}, {m.hidden, m.vocab}} {
			add(op.MatMul{M: rows, K: kn[0], N: columns(rows, kn[0], kn[1]), TransB: true}, nil)
		}
		add(op.RMSNorm{Rows: rows, Width: m.hidden, Eps: 1e-5}, nil)
		add(op.SiLUMul{Rows: rows, Width: m.ffn}, nil)
		add(op.Add{Rows: rows, Width: m.hidden}, nil)
		if m.bias {
			add(op.Add{Rows: rows, Width: m.q(), Broadcast: true}, nil)
			add(op.Add{Rows: rows, Width: m.kv(), Broadcast: true}, nil)
		}
		if m.normed {
			add(op.RMSNorm{Rows: rows, Width: m.dim, Heads: m.heads, Eps: 1e-6}, nil)
			add(op.RMSNorm{Rows: rows, Width: m.dim, Heads: m.kvHeads, Eps: 1e-6}, nil)
		}
		add(op.RoPE{Rows: rows, Heads: m.heads, HeadDim: m.dim}, []Segment{{rows, 0}})
		add(op.RoPE{Rows: rows, Heads: m.kvHeads, HeadDim: m.dim}, []Segment{{rows, 5000}})
		for _, pos := range places(rows) {
			o := op.Attention{Rows: rows, Heads: m.heads, KVHeads: m.kvHeads, HeadDim: m.dim, Cached: true}
			for o.FLOPs(op.Size{Pos: pos}) > maxFLOPs {
				o.Rows /= 2
			}
			add(o, []Segment{{o.Rows, pos}})
			add(op.KVWrite{Rows: rows, KVHeads: m.kvHeads, HeadDim: m.dim}, []Segment{{rows, pos}})
			o.Cached = false
			add(o, nil)
		}
	}
	// An embedding is read row by row, so the vocabulary can be small.
	add(op.Embed{Rows: 64, Vocab: 301, Width: m.hidden}, nil)
	add(op.Pick{Picks: 1, Rows: 64, Width: m.hidden}, nil)
}

// places returns the cache positions at which this many rows start.
func places(rows int) []int {
	switch rows {
	case 1:
		return []int{0, 100}
	case 3:
		return []int{17}
	}
	return []int{0}
}

// products adds matrices of odd sizes in both layouts.
func (t *table) products() {
	for _, rows := range []int{1, 2, 5, 7, 9, 13, 65} {
		for _, s := range [][2]int{{577, 193}, {100, 70}, {31, 65}, {2051, 37}, {64, 48}, {7, 150}} {
			for _, trans := range []bool{true, false} {
				t.add(op.MatMul{M: rows, K: s[0], N: s[1], TransB: trans}, nil, dtype.Invalid, asBF16, asPlans)
			}
		}
	}
}

// weights adds products and embeddings of every weight type.
func (t *table) weights() {
	for _, typ := range (op.MatMul{M: 1, K: 1, N: 1}).Operands()[1].Types {
		for _, rows := range []int{1, 3, 64} {
			for _, k := range []int{256, 2048, 4864} {
				t.add(op.MatMul{M: rows, K: k, N: 67, TransB: true}, nil, typ, asFP32, asPlans)
			}
		}
		t.add(op.Embed{Rows: 5, Vocab: 47, Width: 2048}, nil, typ)
	}
	for _, typ := range []dtype.Type{dtype.F32, dtype.F16, dtype.BF16} {
		t.add(op.RMSNorm{Rows: 3, Width: 577, Eps: 1e-5}, nil, typ)
		t.add(op.LayerNorm{Rows: 3, Width: 577, Eps: 1e-5}, nil, typ)
		t.add(op.Add{Rows: 3, Width: 577, Broadcast: true}, nil, typ)
	}
}

// norms adds shapes that no model has.
func (t *table) norms() {
	for _, rows := range t.rows() {
		for _, width := range []int{64, 577, 768, 3072} {
			t.add(op.LayerNorm{Rows: rows, Width: width, Eps: 1e-5}, nil, dtype.Invalid)
		}
		t.add(op.RMSNorm{Rows: rows, Width: 577, Eps: 1e-5}, nil, dtype.Invalid)
		t.add(op.RMSNorm{Rows: rows, Width: 65, Heads: 3, Eps: 1e-6}, nil, dtype.Invalid)
	}
}

func (t *table) pointwise() {
	for _, rows := range t.rows() {
		for _, width := range []int{97, 577, 3072} {
			t.add(op.SiLUMul{Rows: rows, Width: width}, nil, dtype.Invalid)
			t.add(op.GELU{Rows: rows, Width: width}, nil, dtype.Invalid)
			t.add(op.GELU{Rows: rows, Width: width, Tanh: true}, nil, dtype.Invalid)
			t.add(op.Add{Rows: rows, Width: width}, nil, dtype.Invalid)
			t.add(op.Add{Rows: rows, Width: width, Broadcast: true}, nil, dtype.Invalid)
		}
	}
}

// moves adds the ops that only move data, whose results must be exact.
func (t *table) moves() {
	plain := []dtype.Type{dtype.F32, dtype.F16, dtype.BF16}
	for _, rows := range t.rows() {
		for _, width := range []int{1, 33, 577, 2048} {
			for _, from := range plain {
				for _, to := range plain {
					t.put(op.Cast{Rows: rows, Width: width}, nil, []dtype.Type{from, to}, from == to)
				}
			}
			t.add(op.Embed{Rows: rows, Vocab: 11, Width: width}, nil, dtype.Invalid)
			t.add(op.Pick{Picks: 2, Rows: rows, Width: width}, nil, dtype.Invalid)
			t.add(op.Slice{Rows: rows, Width: width + 5, From: 3, N: width}, nil, dtype.Invalid)
			t.add(op.Concat{Rows: rows, Widths: []int{width, 1, 9}}, nil, dtype.Invalid)
			t.add(op.Permute{Shape: []int{rows, width}, Perm: []int{1, 0}}, nil, dtype.Invalid)
			t.add(op.Permute{Shape: []int{rows, 3, width}, Perm: []int{1, 0, 2}}, nil, dtype.Invalid)
			t.add(op.Permute{Shape: []int{2, 3, 7, width}, Perm: []int{3, 1, 0, 2}}, nil, dtype.Invalid)
		}
	}
}

func (t *table) ropes() {
	for _, dim := range []int{2, 48, 80, 128} {
		t.add(op.RoPE{Rows: 67, Heads: 5, HeadDim: dim}, []Segment{{64, 0}, {1, 4097}, {2, 100000}},
			dtype.Invalid)
		t.add(op.RoPE{Rows: 67, Heads: 5, HeadDim: dim, TableHeads: 5}, []Segment{{67, 4090}},
			dtype.Invalid)
	}
}

// attentions adds every ratio of query heads to KV heads up to 7, far positions, several sessions,
// odd head sizes, and the layouts of the NPU's kernels.
func (t *table) attentions() {
	for group := 1; group <= 7; group++ {
		o := op.Attention{Rows: 5, Heads: 2 * group, KVHeads: 2, HeadDim: 64}
		t.add(o, nil, dtype.Invalid)
		o.Cached = true
		t.add(o, []Segment{{5, 60}}, dtype.Invalid)
	}
	for _, o := range []op.Attention{{Heads: 14, KVHeads: 2, HeadDim: 64},
		{Heads: 4, KVHeads: 4, HeadDim: 128}, {Heads: 6, KVHeads: 3, HeadDim: 96}} {
		for _, segments := range [][]Segment{{{1, 4097}}, {{3, 4500}},
			{{1, 511}, {40, 0}, {1, 512}, {2, 4200}}, {{1, 0}, {1, 1}, {1, 64}, {1, 65}}} {
			o.Rows, o.Cached = 0, true
			for _, s := range segments {
				o.Rows += s.Rows
			}
			t.add(o, segments, dtype.Invalid)
			t.add(op.KVWrite{Rows: o.Rows, KVHeads: o.KVHeads, HeadDim: o.HeadDim}, segments, dtype.Invalid)
		}
	}
	for _, dim := range []int{16, 20, 48, 80, 256} {
		t.add(op.Attention{Rows: 33, Heads: 6, KVHeads: 2, HeadDim: dim, Cached: true},
			[]Segment{{33, 70}}, dtype.Invalid)
		t.add(op.Attention{Rows: 33, Heads: 6, KVHeads: 2, HeadDim: dim}, nil, dtype.Invalid)
		t.add(op.KVWrite{Rows: 33, KVHeads: 3, HeadDim: dim}, []Segment{{30, 70}, {3, 0}}, dtype.Invalid)
	}
	for _, rows := range []int{1, 3, 67} {
		t.add(op.Attention{Rows: rows, Heads: 6, KVHeads: 2, HeadDim: 64, HeadFirst: true, Scale: 0.3},
			nil, dtype.Invalid)
		t.add(op.Attention{Rows: rows, Heads: 4, KVHeads: 1, HeadDim: 128, HeadFirst: true, Split: 2},
			nil, dtype.Invalid)
	}
}
