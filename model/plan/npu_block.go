package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// The planner first lists the launches of a layer over tensors, without program boundaries. It then
// cuts the list into blocks, one for each dispatch. The kind of a tensor in a program follows from
// the cuts: if it is written and read within one block it is scratch, and if another block reads
// it, an output.

// npuTensor is an operand of launches: a weight, an activation or a cache.
type npuTensor struct {
	name  string // of the argument
	typ   dtype.Type
	shape []int // of the argument of an NPU program
	host  []int // of the argument of a host program; nil if it is shape

	layout *npu.Layout // source of a weight or a table
	value  string      // value of the plan, for an activation that is not scratch
	state  string      // cache of the session

	scratchRows int  // of a weight
	trailing    bool // after all other arguments: FP32 results of matrix products before their cast
	output      bool // another layer reads it
}

// npuOperand is a launch's view of a tensor.
type npuOperand struct {
	*npuTensor
	view func(npu.Ref) npu.Ref // nil for the whole tensor
}

// whole returns a view of the whole tensor.
func (t *npuTensor) whole() npuOperand { return npuOperand{t, nil} }

// cols returns a view of the first n columns of every row, or of all columns if the tensor has no
// more.
func (t *npuTensor) cols(n int) npuOperand {
	if shape := t.shape; len(shape) < 2 || shape[len(shape)-1] == n {
		return t.whole()
	}
	return npuOperand{t, func(r npu.Ref) npu.Ref { return r.Cols(0, n) }}
}

// as returns a view of the tensor in another shape.
func (t *npuTensor) as(shape ...int) npuOperand {
	return npuOperand{t, func(r npu.Ref) npu.Ref { return r.As(shape...) }}
}

// npuLaunch is one op over tensors. Consecutive launches of the same stage, such as the rotations
// of q and of k, are alike: the program lists their inputs before their outputs.
type npuLaunch struct {
	name    string
	op      op.Op
	args    []npuOperand
	mapping npu.Mapping
	stage   string
}

// npuCut begins a program at a unit.
type npuCut struct {
	program, instance string
	from              int // index of the first unit
}

// npuUnit is a sequence of launches that no cut separates, such as a matrix product and its cast.
type npuUnit struct {
	name     string
	launches []npuLaunch
}

// npuBlock is the launches of one dispatch.
type npuBlock struct {
	program, instance string
	on                string
	launches          []npuLaunch
	args              []*npuTensor // arguments in this order; nil for order of use
	// a GEMV's weight precedes its input in order of use, as in single GEMV artifacts
	weightFirst bool
	allRows     bool // a host program that moves all rows of the pass, padding included
}

// order returns the arguments of the block's program in order. Published artifacts have them in
// order of use, the inputs of a launch before its outputs, and FP32 scratch at the end.
func (b *npuBlock) order() []*npuTensor {
	if b.args != nil {
		return b.args
	}
	var list, trailing []*npuTensor
	add := func(t *npuTensor) {
		if slices.Contains(list, t) || slices.Contains(trailing, t) {
			return
		}
		if t.trailing {
			trailing = append(trailing, t)
		} else {
			list = append(list, t)
		}
	}
	for i := 0; i < len(b.launches); {
		n := i + 1
		for stage := b.launches[i].stage; stage != "" && n < len(b.launches) && b.launches[n].stage == stage; n++ {
		}
		for _, write := range []bool{false, true} {
			for _, l := range b.launches[i:n] {
				operands := l.op.Operands()
				for j, a := range l.args {
					if operands[j].Write == write {
						if _, gemv := l.op.(op.MatMul); gemv && b.weightFirst && j == 0 {
							add(l.args[1].npuTensor)
						}
						add(a.npuTensor)
					}
				}
			}
		}
		i = n
	}
	return append(list, trailing...)
}

// accesses reports whether the block's launches write t, or read it if write is false.
func (b *npuBlock) accesses(t *npuTensor, write bool) bool {
	for _, l := range b.launches {
		for j, o := range l.op.Operands() {
			if l.args[j].npuTensor == t && (o.Write && write || o.Read && !write) {
				return true
			}
		}
	}
	return false
}

// kind returns the kind of argument t in the block's program. all has the blocks of the layer.
func (b *npuBlock) kind(t *npuTensor, all []*npuBlock) npu.Kind {
	switch {
	case t.layout != nil:
		return npu.Const
	case t.state != "":
		return npu.State
	case !b.accesses(t, true) && b.accesses(t, false):
		return npu.In
	case t.output || slices.ContainsFunc(all, func(c *npuBlock) bool { return c != b && c.accesses(t, false) }):
		return npu.Out
	}
	return npu.Scratch
}

// build makes the block's program.
func (b *npuBlock) build(all []*npuBlock) (*npu.Program, error) {
	p := npu.NewProgram(b.program)
	if b.instance != "" && b.instance != b.program {
		p.Instance = b.instance
	}
	refs := map[*npuTensor]npu.Ref{}
	for _, t := range b.order() {
		shape := t.shape
		if b.on == OnHost && t.host != nil && !b.allRows {
			shape = t.host
		}
		r := p.Arg(b.kind(t, all), t.name, t.typ, shape...)
		if t.scratchRows > 0 {
			r = r.WithScratchRows(t.scratchRows)
		}
		refs[t] = r
	}
	for _, l := range b.launches {
		var args []npu.Ref
		for _, a := range l.args {
			r, ok := refs[a.npuTensor]
			if !ok {
				return nil, fmt.Errorf("plan: program %s, launch %s: %q is not an argument",
					b.program, l.name, a.name)
			}
			if a.view != nil {
				r = a.view(r)
			}
			args = append(args, r)
		}
		p.Launch(l.name, l.op, args...)
		if b.on == OnDevice {
			p.Map(l.mapping)
		}
	}
	return p, p.Err()
}

// bindings returns the bindings of the block's arguments.
func (b *npuBlock) bindings(all []*npuBlock) []Binding {
	var list []Binding
	for _, t := range b.order() {
		switch b.kind(t, all) {
		case npu.Const:
			list = append(list, Binding{Const: t.layout})
		case npu.State:
			list = append(list, Binding{State: t.state})
		case npu.Scratch:
			list = append(list, Binding{})
		default:
			list = append(list, Binding{Value: t.value})
		}
	}
	return list
}

// steps adds blocks to the plan as steps of the given name. Layers after the first reuse the
// programs of the first.
func (b *npuPlanner) steps(to *[]Step, name string, blocks []*npuBlock) {
	for _, block := range blocks {
		if b.err != nil {
			return
		}
		if b.plan.Program(block.program) == nil {
			p, err := block.build(blocks)
			if err != nil {
				b.fail(err)
				return
			}
			b.plan.Programs = append(b.plan.Programs, p)
		}
		bindings := block.bindings(blocks)
		for i, t := range block.order() {
			if v := bindings[i].Value; v != "" && !b.values[v] {
				b.values[v] = true
				b.plan.Values = append(b.plan.Values, Value{v, t.typ, t.shape})
			}
		}
		*to = append(*to, Step{Name: name, Program: block.program, On: block.on, Args: bindings})
	}
}

// group splits units into blocks: at the cuts if merged is set, and else one block for each unit.
func (b *npuPlanner) group(units []npuUnit, merged bool, cuts []npuCut, suffix string) []*npuBlock {
	var blocks []*npuBlock
	for i, u := range units {
		n := slices.IndexFunc(cuts, func(c npuCut) bool { return c.from == i })
		switch {
		case !merged:
			program := strings.ReplaceAll(u.name, ".", "_") + suffix
			blocks = append(blocks, &npuBlock{program: program, on: OnDevice})
		case n >= 0:
			c := cuts[n]
			blocks = append(blocks, &npuBlock{program: c.program + suffix,
				instance: cmp.Or(c.instance, c.program), on: OnDevice})
		}
		last := blocks[len(blocks)-1]
		last.launches = append(last.launches, u.launches...)
	}
	return blocks
}

// npuCache returns a cache of the session.
func npuCache(kvHeads, headDim int, state string) *npuTensor {
	return &npuTensor{name: state[:1] + "cache", typ: dtype.BF16,
		shape: []int{kvHeads, op.Capacity, headDim}, state: state}
}
