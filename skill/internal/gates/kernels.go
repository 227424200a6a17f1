package gates

import (
	"fmt"
	"slices"
	"strings"

	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/skill/internal/journal"
)

// Kernel is a kernel of a plan: an op in a shape, with the types of its operands, under a mapping,
// on the device or on its host.
type Kernel struct {
	Op       op.Op
	Types    []dtype.Type
	Mapping  npu.Mapping
	on       string
	launches []string // the names of the first few, as in taps
	count    int      // in one prefill pass and one decode pass
	Name     string   // "MatMul-1f3a90c2"
	hash     string
}

// KernelsOf returns the distinct kernels of a plan, in the order in which they first run.
func KernelsOf(p *plan.Plan) ([]*Kernel, error) {
	var list []*Kernel
	byHash := map[string]*Kernel{}
	for _, pass := range p.Passes() {
		for _, s := range slices.Concat(pass.Steps, pass.Head) {
			program := p.Program(s.Program)
			for _, l := range program.Launches {
				k := &Kernel{Op: l.Op, Mapping: l.Mapping, on: s.On}
				for _, v := range l.Args {
					k.Types = append(k.Types, program.Args[v.Arg].Type)
				}
				hash, err := journal.Hash([]any{l.Op.Kind(), l.Op, k.Types, k.Mapping, k.on})
				if err != nil {
					return nil, fmt.Errorf("skill: launch %s of program %s: %w", l.Name, program.Name, err)
				}
				if old := byHash[hash]; old != nil {
					k = old
				} else {
					k.hash, k.Name = hash, fmt.Sprintf("%s-%.8s", l.Op.Kind(), hash)
					byHash[hash] = k
					list = append(list, k)
				}
				if k.count++; k.count <= shownLaunches {
					k.launches = append(k.launches, s.Name+"."+l.Name)
				}
			}
		}
	}
	return list, nil
}

// shownLaunches is how many launches of a kernel are named: enough for a norm that comes twice in
// each of two layers.
const shownLaunches = 4

// Text returns the op for people: "MatMul{M:64 K:2048 N:512 TransB:true}", and "M:rows" if the run
// sets the number of rows.
func (k *Kernel) Text() string {
	return fmt.Sprintf("%s%s", k.Op.Kind(), strings.NewReplacer(
		fmt.Sprintf(":%d", op.Rows), ":rows", fmt.Sprintf(":%d", op.Picks), ":picks", fmt.Sprintf(":%d", op.Capacity),
		":capacity").Replace(fmt.Sprintf("%+v", k.Op)))
}

// symbolic reports whether the op's shape is open: it then runs with one row and with many.
func (k *Kernel) symbolic() bool {
	for _, o := range k.Op.Operands() {
		if slices.ContainsFunc(o.Shape, func(d int) bool { return d < 0 }) {
			return true
		}
	}
	return false
}

// stored returns the type of the op's output.
func (k *Kernel) stored() dtype.Type {
	for i, o := range k.Op.Operands() {
		if o.Write {
			return k.Types[i]
		}
	}
	return dtype.BF16
}
