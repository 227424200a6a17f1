package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// Diff returns the changes from plan a to plan b, one line each: settings, values, programs with
// their arguments and mappings, and dispatches. Layers with equal changes are listed once. If there
// are no lines, the plans do the same. Each plan must be valid (see [Plan.Validate]) or nil, which
// is an empty plan.
func Diff(a, b *Plan) []string {
	a, b = cmp.Or(a, &Plan{}), cmp.Or(b, &Plan{})
	var d differ
	d.fields("", settings(a), settings(b))
	d.values(a.Values, b.Values)
	d.programs(a.Programs, b.Programs)
	d.passes(a, b)
	return d.lines
}

// differ collects the lines of Diff.
type differ struct{ lines []string }

func (d *differ) add(format string, args ...any) {
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

// setting is a scalar field of a plan.
type setting struct{ name, value string }

func settings(p *Plan) []setting {
	m, r := p.Model, p.Runtime
	return []setting{
		{"version", fmt.Sprint(p.Version)},
		{"model", fmt.Sprintf("%s %d layers, %d wide, %d/%d heads of %d, ffn %d, vocab %d",
			m.Family, m.Layers, m.Hidden, m.Heads, m.KVHeads,
			m.HeadDim, m.FFN, m.Vocab)},
		{"device", p.Device},
		{"seq_len", fmt.Sprint(p.SeqLen)},
		{"chunk", fmt.Sprint(p.Chunk)},
		{"activations", fmt.Sprint(p.Activations)},
		{"cache", fmt.Sprint(p.Cache)},
		{"runtime.context_reuse", fmt.Sprint(r.ContextReuse)},
		{"runtime.buffer_reuse", fmt.Sprint(r.BufferReuse)},
		{"runtime.skip_transfers", fmt.Sprint(r.SkipTransfers)},
	}
}

func (d *differ) fields(prefix string, a, b []setting) {
	for i := range a {
		if a[i] != b[i] {
			d.add("%s%s: %s -> %s", prefix, a[i].name, a[i].value, b[i].value)
		}
	}
}

// sortedBy returns the names in two lists, those of the first in its order and then the rest, and a
// map from name to element for each list.
func sortedBy[T any](a, b []T, name func(T) string) (names []string, in [2]map[string]T) {
	for i, list := range [][]T{a, b} {
		in[i] = map[string]T{}
		for _, x := range list {
			n := name(x)
			in[i][n] = x
			if !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	return names, in
}

func (d *differ) values(a, b []Value) {
	names, in := sortedBy(a, b, func(v Value) string { return v.Name })
	for _, n := range names {
		x, inA := in[0][n]
		y, inB := in[1][n]
		switch {
		case !inB:
			d.add("- value %s %s %s", n, x.Type, op.ShapeString(x.Shape))
		case !inA:
			d.add("+ value %s %s %s", n, y.Type, op.ShapeString(y.Shape))
		case x.Type != y.Type || !slices.Equal(x.Shape, y.Shape):
			d.add("value %s: %s %s -> %s %s",
				n, x.Type, op.ShapeString(x.Shape), y.Type, op.ShapeString(y.Shape))
		}
	}
}

func (d *differ) programs(a, b []*npu.Program) {
	names, in := sortedBy(a, b, func(p *npu.Program) string { return p.Name })
	for _, n := range names {
		x, y := in[0][n], in[1][n]
		switch {
		case y == nil:
			d.add("- program %s: %s", n, launchNames(x))
		case x == nil:
			d.add("+ program %s: %s", n, launchNames(y))
		default:
			d.program(n, x, y)
		}
	}
}

func launchNames(p *npu.Program) string {
	var names []string
	for _, l := range p.Launches {
		names = append(names, l.Name)
	}
	return strings.Join(names, ", ")
}

func (d *differ) program(name string, a, b *npu.Program) {
	prefix := "program " + name
	if a.Instance != b.Instance {
		d.add("%s: instance %q -> %q", prefix, a.Instance, b.Instance)
	}
	for i := range max(len(a.Args), len(b.Args)) {
		switch {
		case i >= len(b.Args):
			d.add("%s: - argument %d %s", prefix, i, argString(a.Args[i]))
		case i >= len(a.Args):
			d.add("%s: + argument %d %s", prefix, i, argString(b.Args[i]))
		case argString(a.Args[i]) != argString(b.Args[i]):
			d.add("%s: argument %d: %s -> %s", prefix, i, argString(a.Args[i]), argString(b.Args[i]))
		}
	}
	names, in := sortedBy(a.Launches, b.Launches, func(l npu.Launch) string { return l.Name })
	for _, n := range names {
		x, inA := in[0][n]
		y, inB := in[1][n]
		switch {
		case !inB:
			d.add("%s: - launch %s", prefix, n)
		case !inA:
			d.add("%s: + launch %s", prefix, n)
		default:
			if !reflect.DeepEqual(x.Op, y.Op) {
				d.add("%s, launch %s: %s -> %s", prefix, n, opString(x.Op), opString(y.Op))
			}
			if !reflect.DeepEqual(x.Args, y.Args) {
				d.add("%s, launch %s: other views of its arguments", prefix, n)
			}
			if u, v := mappingString(x.Mapping), mappingString(y.Mapping); u != v {
				d.add("%s, launch %s: %s -> %s", prefix, n, u, v)
			}
		}
	}
	order := func(p *npu.Program) (list []string) {
		for _, l := range p.Launches {
			if _, other := in[0][l.Name]; other {
				if _, other = in[1][l.Name]; other {
					list = append(list, l.Name)
				}
			}
		}
		return list
	}
	if !slices.Equal(order(a), order(b)) {
		d.add("%s: launches reordered", prefix)
	}
}

func argString(a npu.Arg) string {
	s := fmt.Sprintf("%s %s %s %s", a.Name, a.Kind, a.Type, op.ShapeString(a.Shape))
	if a.ScratchRows > 0 {
		s += fmt.Sprintf(", %d scratch rows", a.ScratchRows)
	}
	return s
}

func opString(o op.Op) string {
	data, err := op.Marshal(o)
	if err != nil {
		return o.Kind()
	}
	return string(data)
}

// mappingString returns a mapping as JSON.
func mappingString(m npu.Mapping) string {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Sprintf("%+v", m)
	}
	return string(data)
}

// passes compares the dispatches of passes with the same rows.
func (d *differ) passes(a, b *Plan) {
	prefill, in := sortedBy(a.Prefill, b.Prefill,
		func(p Pass) string { return fmt.Sprintf("prefill %d", p.Rows) })
	for _, name := range prefill {
		x, inA := in[0][name]
		y, inB := in[1][name]
		switch {
		case !inB:
			d.add("- %s", name)
		case !inA:
			d.add("+ %s", name)
		default:
			d.pass(name, x, y)
		}
	}
	d.pass("decode", a.Decode, b.Decode)
}

func (d *differ) pass(name string, a, b Pass) {
	if a.Rows != b.Rows {
		d.add("%s: rows %d -> %d", name, a.Rows, b.Rows)
	}
	if a.Cost != b.Cost {
		d.add("%s: predicted %.4g s -> %.4g s", name, a.Cost, b.Cost)
	}
	seen := map[string]bool{}
	for _, part := range []struct{ a, b []Step }{{a.Steps, b.Steps}, {a.Head, b.Head}} {
		steps, in := sortedBy(byName(part.a), byName(part.b), func(s []Step) string { return s[0].Name })
		for _, n := range steps {
			line := stepsDiff(in[0][n], in[1][n])
			general := n
			if strings.HasPrefix(n, "layer.") {
				general = "each such layer"
			}
			key := general + line
			if line == "" || seen[key] {
				continue
			}
			seen[key] = true
			d.add("%s, %s: %s", name, n, line)
		}
	}
}

// byName groups steps by their name, in order of first appearance.
func byName(steps []Step) (groups [][]Step) {
	at := map[string]int{}
	for _, s := range steps {
		i, ok := at[s.Name]
		if !ok {
			i = len(groups)
			at[s.Name] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], s)
	}
	return groups
}

// stepsDiff compares the dispatches of one name: their programs and, if those are equal, their
// bindings. It returns "" if there is no change.
func stepsDiff(a, b []Step) string {
	list := func(steps []Step) string {
		var names []string
		for _, s := range steps {
			n := s.Program
			if s.On == OnHost {
				n += " (host)"
			}
			names = append(names, n)
		}
		if names == nil {
			return "nothing"
		}
		return strings.Join(names, ", ")
	}
	if u, v := list(a), list(b); u != v {
		return u + " -> " + v
	}
	var changes []string
	for i := range a {
		for j := range max(len(a[i].Args), len(b[i].Args)) {
			u, v := bindingString(a[i].Args, j), bindingString(b[i].Args, j)
			if u != v {
				changes = append(changes, fmt.Sprintf("%s argument %d: %s -> %s", a[i].Program, j, u, v))
			}
		}
	}
	return strings.Join(changes, "; ")
}

func bindingString(args []Binding, i int) string {
	if i >= len(args) {
		return "nothing"
	}
	text, err := args[i].MarshalText()
	if err != nil {
		return err.Error()
	}
	return string(text)
}
