package op

import "fmt"

// RMSNorm divides each row by its root mean square and scales it: dst = x / sqrt(mean(x^2) + Eps) *
// w.
//
// If Heads > 1, a row has Heads parts of Width elements, each normalized separately with the same
// w, as in the QK-norm of Qwen3.
//
//	x   [Rows, Heads*Width]
//	w   [Width]
//	dst [Rows, Heads*Width]
//
// Source: Zhang and Sennrich, Root Mean Square Layer Normalization (arXiv 1910.07467), eq. 4.
type RMSNorm struct {
	Rows, Width int
	Heads       int `json:",omitempty"` // 0 means 1
	Eps         float64
}

func (RMSNorm) Kind() string { return "RMSNorm" }

func (o RMSNorm) width() int { return max(1, o.Heads) * o.Width }

func (o RMSNorm) Operands() []Operand {
	return []Operand{
		over("x", activation, o.Rows, o.width()),
		in("w", weight[:3], o.Width),
		out("dst", activation, o.Rows, o.width()),
	}
}

func (o RMSNorm) FLOPs(s Size) float64 { return 4 * float64(s.Resolve(o.Rows)) * float64(o.width()) }

func (o RMSNorm) Validate() error {
	if !(o.Eps >= 0 && o.Eps < 1) { // also rejects NaN
		return fmt.Errorf("op: RMSNorm: Eps is %g, want 0 <= Eps < 1", o.Eps)
	}
	return check("RMSNorm", dim{"Rows", o.Rows, true}, dim{"Width", o.Width, false},
		dim{"Heads", positive(o.Heads), false})
}

// LayerNorm subtracts each row's mean, divides by its standard deviation, scales and shifts:
// dst = (x - mean) / sqrt(var + Eps) * w + b, with the biased variance.
//
//	x   [Rows, Width]
//	w   [Width]
//	b   [Width]
//	dst [Rows, Width]
//
// Source: Ba et al., Layer Normalization (arXiv 1607.06450).
type LayerNorm struct {
	Rows, Width int
	Eps         float64
}

func (LayerNorm) Kind() string { return "LayerNorm" }

func (o LayerNorm) Operands() []Operand {
	return []Operand{
		over("x", activation, o.Rows, o.Width),
		in("w", weight[:3], o.Width),
		in("b", weight[:3], o.Width),
		out("dst", activation, o.Rows, o.Width),
	}
}

func (o LayerNorm) FLOPs(s Size) float64 { return 8 * float64(s.Resolve(o.Rows)) * float64(o.Width) }

func (o LayerNorm) Validate() error {
	if !(o.Eps >= 0 && o.Eps < 1) { // also rejects NaN
		return fmt.Errorf("op: LayerNorm: Eps is %g, want 0 <= Eps < 1", o.Eps)
	}
	return check("LayerNorm", dim{"Rows", o.Rows, true}, dim{"Width", o.Width, false})
}
