package op

// SiLUMul computes the gate of a SwiGLU feed-forward block: dst = gate / (1 + exp(-gate)) * up.
//
//	gate [Rows, Width]
//	up   [Rows, Width]
//	dst  [Rows, Width]
//
// Source: Shazeer, GLU Variants Improve Transformer (arXiv 2002.05202).
type SiLUMul struct {
	Rows, Width int
}

func (SiLUMul) Kind() string { return "SiLUMul" }

func (o SiLUMul) Operands() []Operand {
	return []Operand{
		over("gate", activation, o.Rows, o.Width),
		over("up", activation, o.Rows, o.Width),
		out("dst", activation, o.Rows, o.Width),
	}
}

func (o SiLUMul) FLOPs(s Size) float64 { return 5 * float64(s.Resolve(o.Rows)) * float64(o.Width) }

func (o SiLUMul) Validate() error {
	return check("SiLUMul", dim{"Rows", o.Rows, true}, dim{"Width", o.Width, false})
}

// Add computes dst = a + b. If Broadcast is set, b is a single row, a bias, that is added to every
// row of a.
//
//	a   [Rows, Width]
//	b   [Rows, Width], or [Width] with Broadcast
//	dst [Rows, Width]
type Add struct {
	Rows, Width int
	Broadcast   bool `json:",omitempty"`
}

func (Add) Kind() string { return "Add" }

func (o Add) Operands() []Operand {
	b := over("b", activation, o.Rows, o.Width)
	if o.Broadcast {
		b = in("b", weight[:3], o.Width)
	}
	return []Operand{over("a", activation, o.Rows, o.Width), b, out("dst", activation, o.Rows, o.Width)}
}

func (o Add) FLOPs(s Size) float64 { return float64(s.Resolve(o.Rows)) * float64(o.Width) }

func (o Add) Validate() error {
	return check("Add", dim{"Rows", o.Rows, true}, dim{"Width", o.Width, false})
}

// GELU computes the Gaussian error linear unit, dst = x/2 (1 + erf(x/sqrt(2))), or if Tanh is set
// the approximation dst = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
//
//	x   [Rows, Width]
//	dst [Rows, Width]
//
// Source: Hendrycks and Gimpel, Gaussian Error Linear Units (arXiv 1606.08415).
type GELU struct {
	Rows, Width int
	Tanh        bool `json:",omitempty"`
}

func (GELU) Kind() string { return "GELU" }

func (o GELU) Operands() []Operand {
	return []Operand{over("x", activation, o.Rows, o.Width), out("dst", activation, o.Rows, o.Width)}
}

func (o GELU) FLOPs(s Size) float64 { return 8 * float64(s.Resolve(o.Rows)) * float64(o.Width) }

func (o GELU) Validate() error {
	return check("GELU", dim{"Rows", o.Rows, true}, dim{"Width", o.Width, false})
}
