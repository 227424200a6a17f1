package op

import "fmt"

// Permute copies x with its dimensions reordered: dimension i of dst is dimension Perm[i] of x.
//
//	x   Shape
//	dst Shape[Perm[0]], Shape[Perm[1]], ...
type Permute struct {
	Shape []int
	Perm  []int
}

func (Permute) Kind() string { return "Permute" }

func (o Permute) Operands() []Operand {
	dst := make([]int, len(o.Perm))
	for i, p := range o.Perm {
		if p >= 0 && p < len(o.Shape) {
			dst[i] = o.Shape[p]
		}
	}
	return []Operand{in("x", activation, o.Shape...), out("dst", activation, dst...)}
}

func (o Permute) FLOPs(Size) float64 { return 0 }

func (o Permute) Validate() error {
	if len(o.Shape) == 0 || len(o.Shape) > 4 || len(o.Shape) != len(o.Perm) {
		return fmt.Errorf("op: Permute: Shape has %d dimensions and Perm %d, want the same number, 1 to 4",
			len(o.Shape), len(o.Perm))
	}
	seen := make([]bool, len(o.Perm))
	for i, p := range o.Perm {
		if p < 0 || p >= len(o.Perm) || seen[p] {
			return fmt.Errorf("op: Permute: Perm is %v, want each of 0 to %d once", o.Perm, len(o.Perm)-1)
		}
		seen[p] = true
		if err := check("Permute", dim{fmt.Sprintf("Shape[%d]", i), o.Shape[i], true}); err != nil {
			return err
		}
	}
	return nil
}

// Slice copies columns From to From+N of every row.
//
//	x   [Rows, Width]
//	dst [Rows, N]
type Slice struct {
	Rows, Width, From, N int
}

func (Slice) Kind() string { return "Slice" }

func (o Slice) Operands() []Operand {
	return []Operand{in("x", activation, o.Rows, o.Width), out("dst", activation, o.Rows, o.N)}
}

func (o Slice) FLOPs(Size) float64 { return 0 }

func (o Slice) Validate() error {
	if o.From < 0 || o.N <= 0 || o.From > o.Width-o.N {
		return fmt.Errorf("op: Slice: columns %d to %d are outside a row of %d", o.From, o.From+o.N, o.Width)
	}
	return check("Slice", dim{"Rows", o.Rows, true}, dim{"Width", o.Width, false})
}

// Concat concatenates rows: dst[r] = x0[r], x1[r], ...
//
//	x0  [Rows, Widths[0]]
//	x1  [Rows, Widths[1]] ...
//	dst [Rows, sum of Widths]
type Concat struct {
	Rows   int
	Widths []int
}

// maxParts bounds the number of inputs. No model has more than a handful.
const maxParts = 64

func (Concat) Kind() string { return "Concat" }

func (o Concat) Operands() []Operand {
	var list []Operand
	sum := 0
	for i, w := range o.Widths {
		list = append(list, in(fmt.Sprintf("x%d", i), activation, o.Rows, w))
		sum += w
	}
	return append(list, out("dst", activation, o.Rows, sum))
}

func (o Concat) FLOPs(Size) float64 { return 0 }

func (o Concat) Validate() error {
	if len(o.Widths) == 0 {
		return fmt.Errorf("op: Concat: Widths is empty, want at least one")
	}
	if len(o.Widths) > maxParts {
		return fmt.Errorf("op: Concat: %d Widths, want at most %d", len(o.Widths), maxParts)
	}
	for i, w := range o.Widths {
		if err := check("Concat", dim{fmt.Sprintf("Widths[%d]", i), w, false}); err != nil {
			return err
		}
	}
	return check("Concat", dim{"Rows", o.Rows, true})
}
