package cpu

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// executable is a program prepared for its runs: operands are resolved to arguments and offsets.
// The builder fills in values that are only known in a run, such as rows and addresses.
type executable struct {
	d        *Device
	p        *npu.Program
	launches []launch
	written  []bool // by argument: whether a launch writes it

	// The index of each argument among the State arguments, -1 for others.
	states []int
	// Rows of a Const that the program writes are in memory of the device. Extra has the size of
	// these rows in elements; operands refer to them by indices after those of the arguments.
	extra []extraArg

	closed atomic.Bool
}

type extraArg struct {
	arg      int
	elements int
}

// launch is one launch with its operands.
type launch struct {
	name     string
	op       op.Op
	operands []operand
	join     *join // of a product; nil if it is not fused
}

// operand is one operand of a launch.
type operand struct {
	arg    int // of the program, or after those, of executable.extra
	offset int64
	shape  []int // in the op's terms, possibly symbolic
	stride int64 // elements from row to row
	read   bool
	write  bool
}

func (e *executable) Program() *npu.Program { return e.p }

// Close frees nothing, since an executable owns no memory. Runs of it are refused from then on.
func (e *executable) Close() error {
	e.closed.Store(true)
	return nil
}

// maxCommands is the most commands of a launch: a product is packed and multiplied, an attention
// over halves is copied there and back.
const maxCommands = 3

// Load prepares a program. It accepts all ops of package op, with any shape.
func (d *Device) Load(ctx context.Context, p *npu.Program) (npu.Executable, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("npu/cpu: %w", err)
	}
	if d.closed.Load() {
		return nil, fmt.Errorf("npu/cpu: Load: %w", npu.ErrClosed)
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	e := &executable{
		d: d, p: p,
		written: make([]bool, len(p.Args)), states: make([]int, len(p.Args)),
	}
	n := 0
	extra := make([]int, len(p.Args))
	for i, a := range p.Args {
		e.states[i] = -1
		if a.Kind == npu.State {
			e.states[i] = n
			n++
		}
		if a.ScratchRows > 0 {
			extra[i] = len(p.Args) + len(e.extra)
			e.extra = append(e.extra, extraArg{i, a.ScratchRows * (op.Size{}).Elements(a.Shape[1:])})
		}
	}
	for _, l := range p.Launches {
		if !computes(l.Op) {
			return nil, fmt.Errorf("npu/cpu: program %s, launch %q: there is no kernel for %s", p.Name, l.Name,
				l.Op.Kind())
		}
		bad := func(i int, reason string) error {
			return &npu.ProgramError{Program: p.Name, Launch: l.Name, Arg: p.Args[l.Args[i].Arg].Name, Reason: reason}
		}
		out := launch{name: l.Name, op: l.Op}
		for i, want := range l.Op.Operands() {
			v := l.Args[i]
			o := operand{
				arg: v.Arg, offset: int64(v.Offset), shape: want.Shape, stride: int64(v.Stride),
				read: want.Read, write: want.Write,
			}
			if o.stride == 0 && len(want.Shape) > 1 {
				// No gaps. A symbol among the inner dimensions makes it negative, and then it is
				// not used.
				o.stride = int64((op.Size{Rows: -1, Picks: -1, Capacity: -1}).Elements(want.Shape[1:]))
			}
			a := p.Args[v.Arg]
			if cache := isCache(l.Op, i); cache != (a.Kind == npu.State) {
				return nil, bad(i, fmt.Sprintf("npu/cpu takes state arguments as the caches of KVWrite "+
					"and Attention, and nothing else there; it is %v", a.Kind))
			}
			if x := extra[v.Arg]; x != 0 {
				// The scratch rows have their own memory; validation rejects views of both them and
				// the weight.
				if v.Offset < e.extra[x-len(p.Args)].elements {
					o.arg = x
				}
			}
			if want.Write && o.arg < len(p.Args) {
				e.written[o.arg] = true
			}
			out.operands = append(out.operands, o)
		}
		e.launches = append(e.launches, out)
	}
	for i := range len(e.launches) - 1 {
		e.launches[i].join = joinOf(p, e.launches, i)
	}
	return e, nil
}

// computes reports whether an op is one of package op's, all of which have kernels.
func computes(o op.Op) bool {
	switch o.(type) {
	case op.MatMul, op.Embed, op.Pick, op.RMSNorm, op.LayerNorm, op.RoPE, op.KVWrite, op.Attention,
		op.SiLUMul, op.GELU, op.Add, op.Cast, op.Slice, op.Concat, op.Permute:
		return true
	}
	return false
}

// isCache reports whether the i-th operand of o is a KV cache.
func isCache(o op.Op, i int) bool {
	switch o := o.(type) {
	case op.KVWrite:
		return i == 1
	case op.Attention:
		return o.Cached && (i == 1 || i == 2)
	}
	return false
}

// bound is an argument with its memory for one run.
type bound struct {
	mem      *byte // nil for a late weight until its BF16 is needed
	typ      dtype.Type
	code     int32
	constant bool

	weight *shared // a late weight, which provides its memory on request
	// the same, if the program names a quantized type and so leaves the format to the device
	grouped *groupedWeight
	bf12    *bf12Weight // the weight in BF12
}
