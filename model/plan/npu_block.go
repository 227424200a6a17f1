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

// A layer for the NPU is first a list of launches over tensors, in which nothing says where a program ends. It is then cut into blocks,
// one for each dispatch, and what a tensor is in a program follows from the cut: written and read inside one block it is scratch, written
// for another block an output.

// npuTensor is something that launches read or write.
type npuTensor struct {
	name  string // of the argument
	typ   dtype.Type
	shape []int // of the argument of a program on the NPU
	host  []int // of the argument of a program on the host; nil for the same

	layout *npu.Layout // what a weight or a table is made of
	value  string      // the plan's value that an activation lies in when it is not scratch
	state  string      // the session's cache

	scratchRows int  // of a weight
	late        bool // behind all other arguments: FP32 results of matrix products before their cast
	leaves      bool // read by another layer
}

// npuOperand is a launch's view of a tensor.
type npuOperand struct {
	*npuTensor
	view func(npu.Ref) npu.Ref // nil for all of it
}

// whole is a tensor seen as it is.
func (t *npuTensor) whole() npuOperand { return npuOperand{t, nil} }

// cols is the first n columns of every row; all of them where the tensor is no wider.
func (t *npuTensor) cols(n int) npuOperand {
	if shape := t.shape; len(shape) < 2 || shape[len(shape)-1] == n {
		return t.whole()
	}
	return npuOperand{t, func(r npu.Ref) npu.Ref { return r.Cols(0, n) }}
}

// as is the tensor under another shape.
func (t *npuTensor) as(shape ...int) npuOperand {
	return npuOperand{t, func(r npu.Ref) npu.Ref { return r.As(shape...) }}
}

// npuLaunch is one op over tensors. Neighbours with the same stage are alike, as the rotations of q and of k: a program lists what all of
// them read before what they write.
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

// npuUnit is the launches that no cut separates: a matrix product with its cast.
type npuUnit struct {
	name     string
	launches []npuLaunch
}

// npuBlock is the launches of one dispatch.
type npuBlock struct {
	program, instance string
	on                string
	launches          []npuLaunch
	args              []*npuTensor // in this order; nil for the order of use
	weightFirst       bool         // in the order of use, a launch's weight stands before its input: single GEMV artefacts have it so
	allRows           bool         // a program on the host that moves all rows of the pass, true or not
}

// order lists the arguments of the block's program. Published artefacts have them in the order of use, what is read by a launch before
// what it writes, with FP32 scratch at the end.
func (b *npuBlock) order() []*npuTensor {
	if b.args != nil {
		return b.args
	}
	var list, late []*npuTensor
	add := func(t *npuTensor) {
		if slices.Contains(list, t) || slices.Contains(late, t) {
			return
		}
		if t.late {
			late = append(late, t)
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
	return append(list, late...)
}

// touches reports whether the block's launches read or write a tensor.
func (b *npuBlock) touches(t *npuTensor, write bool) bool {
	for _, l := range b.launches {
		for j, o := range l.op.Operands() {
			if l.args[j].npuTensor == t && (o.Write && write || o.Read && !write) {
				return true
			}
		}
	}
	return false
}

// kind is what a tensor is to a block, among all blocks of a layer.
func (b *npuBlock) kind(t *npuTensor, all []*npuBlock) npu.Kind {
	switch {
	case t.layout != nil:
		return npu.Const
	case t.state != "":
		return npu.State
	case !b.touches(t, true) && b.touches(t, false):
		return npu.In
	case t.leaves || slices.ContainsFunc(all, func(c *npuBlock) bool { return c != b && c.touches(t, false) }):
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
				return nil, fmt.Errorf("plan: program %s, launch %s: %q is no argument of it", b.program, l.name, a.name)
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

// bindings are where the bytes of the block's arguments come from.
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

// steps adds blocks to a plan as steps of one name. Layers after the first find their programs there.
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

// group cuts units into blocks: as the cuts say, or one for each unit.
func (b *npuPlanner) group(units []npuUnit, merged bool, cuts []npuCut, suffix string) []*npuBlock {
	var blocks []*npuBlock
	for i, u := range units {
		n := slices.IndexFunc(cuts, func(c npuCut) bool { return c.from == i })
		switch {
		case !merged:
			blocks = append(blocks, &npuBlock{program: strings.ReplaceAll(u.name, ".", "_") + suffix, on: OnDevice})
		case n >= 0:
			c := cuts[n]
			blocks = append(blocks, &npuBlock{program: c.program + suffix, instance: cmp.Or(c.instance, c.program), on: OnDevice})
		}
		last := blocks[len(blocks)-1]
		last.launches = append(last.launches, u.launches...)
	}
	return blocks
}

// npuCache is one of the session's caches.
func npuCache(kvHeads, headDim int, state string) *npuTensor {
	return &npuTensor{name: state[:1] + "cache", typ: dtype.BF16, shape: []int{kvHeads, op.Capacity, headDim}, state: state}
}
