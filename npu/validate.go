package npu

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/npukit/npukit/npu/op"
)

// checker checks the parts of a program.
type checker struct{ *Program }

// validate checks a whole program: arguments, launches in order, outputs written. Programs built
// with [NewProgram] have been checked step by step.
func (p *Program) validate() error {
	c := checker{p}
	if p.Name == "" {
		return &ProgramError{Reason: "no name"}
	}
	for i := range p.Args {
		if err := c.checkArg(i); err != nil {
			return err
		}
	}
	done := newCoverage(p, 0)
	for i := range p.Launches {
		if err := c.checkLaunch(i, done); err != nil {
			return err
		}
		done.add(i)
	}
	for i, a := range p.Args {
		if a.Kind == Out && !done.covers(View{Arg: i}) {
			return &ProgramError{Program: p.Name, Arg: a.Name, Reason: "no launch writes all of this output"}
		}
	}
	return nil
}

// maxItems bounds the arguments and the launches of a program: a merged decoder layer has about
// twenty of each, a whole model about a thousand launches.
const maxItems = 4096

// maxElements bounds arguments and views, so that offsets and byte sizes cannot overflow.
const maxElements = 1 << 48

// elements returns the number of elements of a shape with symbols counted as one, and whether it is
// in range.
func elements(shape []int) (int, bool) {
	n := 1
	for _, d := range shape {
		if d < 0 {
			if d < op.Capacity {
				return 0, false
			}
			continue
		}
		if d == 0 || d > maxElements/n {
			return 0, false
		}
		n *= d
	}
	return n, true
}

func (p checker) checkArg(i int) error {
	a := p.Args[i]
	bad := func(format string, args ...any) error {
		return &ProgramError{Program: p.Name, Arg: a.Name, Reason: fmt.Sprintf(format, args...)}
	}
	if i >= maxItems {
		return bad("more than %d arguments", maxItems)
	}
	if a.Name == "" {
		return bad("argument %d has no name", i)
	}
	if slices.ContainsFunc(p.Args[:i], func(b Arg) bool { return b.Name == a.Name }) {
		return bad("duplicate name")
	}
	if int(a.Kind) >= len(kindNames) {
		return bad("unknown kind %d", a.Kind)
	}
	if !a.Type.Valid() {
		return bad("no element type")
	}
	if len(a.Shape) == 0 || len(a.Shape) > 4 {
		return bad("%d dimensions, want 1 to 4", len(a.Shape))
	}
	if _, ok := elements(a.Shape); !ok {
		return bad("shape %s: a dimension is out of range", op.ShapeString(a.Shape))
	}
	if n := symbols(a.Shape); n[0]+n[1]+n[2] > 1 || n[2] == 1 && a.Kind != State {
		return bad("shape %s: at most one dimension may be symbolic, and Capacity is for State only",
			op.ShapeString(a.Shape))
	}
	if block, _ := a.Type.Block(); a.Shape[len(a.Shape)-1]%block != 0 {
		return bad("shape %s: rows of %s must be whole blocks of %d elements", op.ShapeString(a.Shape),
			a.Type, block)
	}
	if n := a.ScratchRows; n != 0 && (a.Kind != Const || symbols(a.Shape) != [3]int{} || n < 0 ||
		n >= a.Shape[0]) {
		return bad("%d scratch rows: want fewer than its rows, in a const argument of fixed shape", n)
	}
	return nil
}

// checkLaunch checks launch i, given what the launches before it have written.
func (p checker) checkLaunch(i int, before *coverage) error {
	l := p.Launches[i]
	if i >= maxItems {
		return p.badLaunch("", "more than %d launches", maxItems)
	}
	if l.Name == "" {
		return p.badLaunch("", "launch %d has no name", i)
	}
	if slices.ContainsFunc(p.Launches[:i], func(m Launch) bool { return m.Name == l.Name }) {
		return p.badLaunch(l.Name, "duplicate name")
	}
	if l.Op == nil {
		return p.badLaunch(l.Name, "no op")
	}
	// implements Op too, but devices switch on structs
	if reflect.TypeOf(l.Op).Kind() == reflect.Pointer {
		return p.badLaunch(l.Name, "op is a %T: pass the struct itself, not its address", l.Op)
	}
	if err := l.Op.Validate(); err != nil {
		return &ProgramError{Program: p.Name, Launch: l.Name, Reason: err.Error(), Err: err}
	}
	operands := l.Op.Operands()
	if len(operands) != len(l.Args) {
		return p.badLaunch(l.Name, "%s takes %d arguments, got %d", l.Op.Kind(), len(operands),
			len(l.Args))
	}
	for j, operand := range operands {
		if err := p.checkOperand(i, operand, l.Args[j], before); err != nil {
			return err
		}
	}
	return p.checkInPlace(l, operands)
}

// checkInPlace returns an error if an output overlaps an input, unless the op allows it.
func (p checker) checkInPlace(l Launch, operands []op.Operand) error {
	for j, out := range operands {
		for k, in := range operands {
			if !out.Write || j == k || l.Args[j].Arg != l.Args[k].Arg {
				continue
			}
			y, x := p.matrix(l.Args[j]), p.matrix(l.Args[k])
			if !y.overlaps(x) || in.InPlace && y == x {
				continue
			}
			reason := fmt.Sprintf("%s overlaps %s, but %s does not work in place: write to another argument",
				out.Name, in.Name, l.Op.Kind())
			if in.InPlace {
				reason = fmt.Sprintf("%s overlaps %s in part: write to the same elements or to others",
					out.Name, in.Name)
			}
			return &ProgramError{
				Program: p.Name, Launch: l.Name, Arg: p.Args[l.Args[j].Arg].Name, Reason: reason,
			}
		}
	}
	return nil
}

// checkOperand checks one argument of launch i against the operand of its op.
func (p checker) checkOperand(i int, operand op.Operand, v View, before *coverage) error {
	if v.Arg < 0 || v.Arg >= len(p.Args) {
		return p.badLaunch(p.Launches[i].Name, "argument %d does not exist", v.Arg)
	}
	a := p.Args[v.Arg]
	bad := func(format string, args ...any) error {
		return &ProgramError{Program: p.Name, Launch: p.Launches[i].Name, Arg: a.Name,
			Reason: fmt.Sprintf(format, args...)}
	}
	if err := p.checkView(v); err != nil {
		return bad("%v", err)
	}
	if a.Kind == State && (v.Offset != 0 || v.Shape != nil || v.Stride != 0) {
		return bad("a partial view: a state argument must be passed whole")
	}
	shape, _ := p.viewShape(v)
	if !sameShape(shape, operand.Shape) {
		return bad("shape %s, %s wants %s as %s", op.ShapeString(shape), p.Launches[i].Op.Kind(),
			op.ShapeString(operand.Shape), operand.Name)
	}
	if !slices.Contains(operand.Types, a.Type) {
		return bad("type %s, %s takes %v as %s", a.Type, p.Launches[i].Op.Kind(), operand.Types,
			operand.Name)
	}
	if !p.matrix(v).dense() && len(operand.Shape) > 2 {
		return bad("rows are not contiguous, %s wants %s as %s", p.Launches[i].Op.Kind(),
			op.ShapeString(operand.Shape), operand.Name)
	}
	if row, _ := elements(a.Shape[1:]); v.Offset < a.ScratchRows*row && !p.inScratchRows(v) {
		return bad("the view has both scratch rows and weights: use a view of one of them")
	}
	if operand.Write {
		switch {
		case a.Kind == In:
			return bad("an input cannot be written")
		case a.Kind == Const && !p.inScratchRows(v):
			return bad("a const cannot be written")
		}
	}
	if operand.Read && (a.Kind == Out || a.Kind == Scratch || a.Kind == Const && p.inScratchRows(v)) &&
		!before.covers(v) {
		return bad("read before any launch has written it")
	}
	return nil
}

// checkView returns an error if a view exceeds its argument. If the number of rows is open, a view
// has all rows and a range of columns.
func (p checker) checkView(v View) error {
	if v.Offset == 0 && v.Shape == nil && v.Stride == 0 {
		return nil
	}
	a := p.Args[v.Arg]
	shape, stride := p.viewShape(v)
	_, ok := elements(shape)
	if !ok || len(shape) == 0 || v.Offset < 0 || v.Offset > maxElements || v.Stride < 0 ||
		v.Stride > maxElements || v.Stride != 0 && len(shape) != 2 {
		return fmt.Errorf("malformed view (offset %d, shape %s, stride %d)", v.Offset,
			op.ShapeString(shape), v.Stride)
	}
	outside := fmt.Errorf("view (offset %d, shape %s, stride %d) exceeds shape %s", v.Offset,
		op.ShapeString(shape), stride,
		op.ShapeString(a.Shape))
	if symbols(shape) != symbols(a.Shape) {
		return outside
	}
	m := p.matrix(v)
	if symbols(a.Shape) != [3]int{} {
		// A range of columns of all rows.
		whole := View{}.Matrix(a.Shape)
		if m.Rows >= 0 || whole.Rows >= 0 || m.Stride != whole.Width || m.Offset > whole.Width-m.Width {
			return outside
		}
		return p.checkBlocks(a, m)
	}
	whole, _ := elements(a.Shape)
	if m.Stride < m.Width || m.Rows-1 > maxElements/m.Stride || m.end() > whole {
		return outside
	}
	return p.checkBlocks(a, m)
}

// checkBlocks returns an error if a view splits a quantized block.
func (p checker) checkBlocks(a Arg, m Matrix) error {
	if block, _ := a.Type.Block(); m.Offset%block != 0 || m.Stride%block != 0 {
		return fmt.Errorf("view splits a block of %s", a.Type)
	}
	return nil
}

// sameShape compares shapes without leading ones, so that a vector can be a matrix of one row.
func sameShape(a, b []int) bool { return slices.Equal(withoutOnes(a), withoutOnes(b)) }

func (p checker) inScratchRows(v View) bool {
	a := p.Args[v.Arg]
	if a.ScratchRows == 0 {
		return false
	}
	return p.matrix(v).end() <= a.ScratchRows*(op.Size{}).Elements(a.Shape[1:])
}
