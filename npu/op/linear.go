package op

import "github.com/npukit/npukit/npu/dtype"

// MatMul computes dst = a w, or a w^T if TransB is set, accumulating in FP32. With M = 1 it is a
// GEMV.
//
//	a   [M, K]
//	w   [K, N], or [N, K] with TransB (the layout of Hugging Face linear layers)
//	dst [M, N]
type MatMul struct {
	M, K, N int
	TransB  bool `json:",omitempty"`
}

func (MatMul) Kind() string { return "MatMul" }

func (o MatMul) Operands() []Operand {
	w := in("w", weight, o.K, o.N)
	if o.TransB {
		w = in("w", weight, o.N, o.K)
	}
	return []Operand{in("a", activation, o.M, o.K), w, out("dst", activation, o.M, o.N)}
}

func (o MatMul) FLOPs(s Size) float64 {
	return 2 * float64(s.Resolve(o.M)) * float64(o.K) * float64(o.N)
}

func (o MatMul) Validate() error {
	return check("MatMul", dim{"M", o.M, true}, dim{"K", o.K, false}, dim{"N", o.N, false})
}

// Embed gathers rows of a table: dst[r] = table[ids[r]].
//
//	ids   [Rows] int32, each in [0, Vocab)
//	table [Vocab, Width]
//	dst   [Rows, Width]
type Embed struct {
	Rows, Vocab, Width int
}

func (Embed) Kind() string { return "Embed" }

func (o Embed) Operands() []Operand {
	return []Operand{in("ids", index, o.Rows), in("table", weight, o.Vocab, o.Width),
		out("dst", activation, o.Rows, o.Width)}
}

func (o Embed) FLOPs(Size) float64 { return 0 }

func (o Embed) Validate() error {
	return check("Embed", dim{"Rows", o.Rows, true}, dim{"Vocab", o.Vocab, false}, dim{"Width", o.Width, false})
}

// Pick gathers rows of activations: dst[i] = x[index[i]]. It selects the rows whose logits are
// computed, before the LM head.
//
//	index [Picks] int32, each in [0, Rows)
//	x     [Rows, Width]
//	dst   [Picks, Width]
type Pick struct {
	Picks, Rows, Width int
}

func (Pick) Kind() string { return "Pick" }

func (o Pick) Operands() []Operand {
	return []Operand{in("index", index, o.Picks), in("x", activation, o.Rows, o.Width),
		out("dst", activation, o.Picks, o.Width)}
}

func (o Pick) FLOPs(Size) float64 { return 0 }

func (o Pick) Validate() error {
	return check("Pick", dim{"Picks", o.Picks, true}, dim{"Rows", o.Rows, true}, dim{"Width", o.Width, false})
}

// Cast converts the element type. FP32 to BF16 rounds to nearest even.
//
//	x   [Rows, Width]
//	dst [Rows, Width]
type Cast struct {
	Rows, Width int
}

func (Cast) Kind() string { return "Cast" }

func (o Cast) Operands() []Operand {
	any := []dtype.Type{dtype.F32, dtype.F16, dtype.BF16}
	return []Operand{over("x", any, o.Rows, o.Width), out("dst", any, o.Rows, o.Width)}
}

func (o Cast) FLOPs(Size) float64 { return 0 }

func (o Cast) Validate() error {
	return check("Cast", dim{"Rows", o.Rows, true}, dim{"Width", o.Width, false})
}
