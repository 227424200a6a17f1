package xdna

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// ErrNoArtefact is returned if a program has not been compiled. The error that wraps it names the
// program and describes how to build it.
var ErrNoArtefact = errors.New("no artefact for the program")

// ErrMismatch is returned if an artefact has a program's name but is for another one. The error that
// wraps it has the difference and advice.
var ErrMismatch = errors.New("the artefact is for another program")

// find returns the artefact of a program; see [Device.Load].
func (s *Artefacts) find(p *npu.Program) (*Artefact, error) {
	a := s.Get(p.Name)
	if a == nil {
		return nil, noArtefact(p, s.Dirs)
	}
	if err := a.Check(); err != nil {
		return nil, fmt.Errorf("npu/xdna: program %s: %w: %w", p.Name, ErrNoArtefact, err)
	}
	if err := a.match(p); err != nil {
		return nil, fmt.Errorf("npu/xdna: artefact %s: %w: %w", a.Binary, ErrMismatch, err)
	}
	return a, nil
}

func noArtefact(p *npu.Program, dirs []string) error {
	where := "no artefact folder is set"
	if len(dirs) > 0 {
		where = "not in " + strings.Join(dirs, ", ")
	}
	return fmt.Errorf("npu/xdna: program %s (%d arguments, %d launches): %w: %s. For MLIR-AIR's language "+
		"models run `make verify` in programming_examples/llms/MODEL and use its folder build_peano. "+
		"For other programs set a compile command (npukit's --compile, Options.Compile of "+
		"npu/xdna)", p.Name, len(p.Args), len(p.Launches),
		ErrNoArtefact, where)
}

// match returns an error if the artefact's signature is not that of the program.
func (a *Artefact) match(p *npu.Program) error {
	if a.isELF() {
		if err := a.matchInstance(p); err != nil {
			return err
		}
	}
	if err := a.matchSizes(p); err != nil {
		return err
	}
	if err := a.matchReach(p); err != nil {
		return err
	}
	if err := a.matchLayout(p); err != nil {
		return err
	}
	return a.matchMapping(p)
}

// matchSizes compares the sizes that the manifest states.
func (a *Artefact) matchSizes(p *npu.Program) error {
	if a.Arguments == nil {
		return nil
	}
	if len(a.Arguments) != len(p.Args) {
		return fmt.Errorf("it has %d arguments, program %s has %d: compile it for this model "+
			"and sequence length", len(a.Arguments), p.Name, len(p.Args))
	}
	for i, arg := range p.Args {
		if n := argBytes(arg); n != a.Arguments[i] {
			return fmt.Errorf("argument %d has %d bytes, %s: compile it for this model and sequence length",
				i, a.Arguments[i], describeArg(p, i))
		}
	}
	return nil
}

func describeArg(p *npu.Program, i int) string {
	arg := p.Args[i]
	return fmt.Sprintf("%q of program %s is %s %s with %d bytes", arg.Name, p.Name, arg.Type,
		op.ShapeString(arg.Shape), argBytes(arg))
}

// matchReach compares the arguments with the reach of the transfers. A transfer past the end would
// overwrite other buffers, so it is an error even if the manifest states other sizes. If it states
// none, the transfers must reach the ends of the views that the launches use.
func (a *Artefact) matchReach(p *npu.Program) error {
	used, err := a.readUsage()
	if err != nil {
		if a.Arguments != nil {
			return nil
		}
		return fmt.Errorf("its manifest states no sizes of arguments, and they cannot be read from the binary: %w: "+
			"add \"arguments\", the bytes of each, to its entry in %s", err, manifestName)
	}
	if n := len(used.Arguments); a.isELF() && n < len(p.Args) {
		return fmt.Errorf("its kernel has %d arguments, program %s has %d: compile it for this model",
			n, p.Name, len(p.Args))
	}
	for i, u := range used.Arguments {
		switch {
		case u.Reach == 0:
		case i >= len(p.Args):
			return fmt.Errorf("it uses argument %d, program %s has %d: compile it for this model", i, p.Name,
				len(p.Args))
		case u.Reach > int64(argBytes(p.Args[i])):
			return fmt.Errorf("its transfers reach byte %d of argument %d, %s: "+
				"compile it for this model and sequence length", u.Reach, i, describeArg(p, i))
		}
	}
	if a.Arguments != nil {
		return nil
	}
	for i, arg := range p.Args {
		var reach int64
		if i < len(used.Arguments) {
			reach = used.Arguments[i].Reach
		}
		if need := usedBytes(p, i); arg.Kind != npu.Scratch && reach < need {
			return fmt.Errorf("its transfers reach byte %d of argument %d, and the launches use %d; %s: compile it "+
				"for this model and sequence length. If it is, add \"arguments\", the bytes of each, to its entry "+
				"in %s", reach, i, need, describeArg(p, i), manifestName)
		}
	}
	return nil
}

// usedBytes returns the end of the furthest view of an argument, in bytes: 0 if no launch uses it.
func usedBytes(p *npu.Program, i int) int64 {
	end := 0
	for _, l := range p.Launches {
		for _, v := range l.Args {
			if v.Arg != i {
				continue
			}
			shape, stride := p.Shape(v)
			rows, width := 1, shape[0]
			if len(shape) > 1 {
				rows, width = shape[0], 1
				for _, d := range shape[1:] {
					width *= d
				}
			}
			last := v.Offset + (rows-1)*stride + width
			end = max(end, last)
		}
	}
	return int64(p.Args[i].Type.Bytes(end))
}

// matchLayout compares the head layout of attention. It must be known, because a wrong one computes
// noise. The manifest's is believed unless the binary shows the other one.
func (a *Artefact) matchLayout(p *npu.Program) error {
	want := headLayout(p)
	if want == "" {
		return nil
	}
	shown := a.readLayout(p)
	have := a.Layout
	switch {
	case have == "" && shown == "":
		return fmt.Errorf("its manifest states no layout of attention, and the binary does not show it: add "+
			"\"layout\": %q to its entry in %s if it is %s; MLIR-AIR compiles seq-first for a head_dim of 64 and for "+
			"Llama-3.2-3B, and head-first for other models", want, manifestName, want)
	case have == "":
		have = shown
	case shown != "" && shown != have:
		return fmt.Errorf("its manifest states %s attention, but its transfers are %s: correct \"layout\" in %s", have,
			shown, manifestName)
	}
	if have != want {
		return fmt.Errorf("its attention is %s, program %s is %s, so the results would be noise: compile it for this "+
			"plan, or plan with the other layout", have, p.Name, want)
	}
	return nil
}

// readLayout returns the layout of attention that the pitches of its queries show, or "". The next
// row of a head follows after all heads if the layout is sequence-first, and after one head if it is
// head-first; the next head follows after one head, or after all rows. So only a pitch of all heads
// or of all rows is evidence.
func (a *Artefact) readLayout(p *npu.Program) string {
	used, err := a.readUsage()
	if err != nil {
		return ""
	}
	for _, l := range p.Launches {
		o, ok := l.Op.(op.Attention)
		if !ok || l.Args[0].Arg >= len(used.Arguments) || o.Heads == 1 || o.Heads == o.Rows {
			continue
		}
		q := l.Args[0].Arg
		head, pitches := int64(p.Args[q].Type.Bytes(o.HeadDim)), used.Arguments[q].Pitches
		allHeads := slices.Contains(pitches, head*int64(o.Heads))
		switch allRows := slices.Contains(pitches, head*int64(o.Rows)); {
		case allHeads && !allRows:
			return seqFirst
		case allRows && !allHeads:
			return headFirst
		}
	}
	return ""
}

// matchMapping compares the mapping that the manifest states.
func (a *Artefact) matchMapping(p *npu.Program) error {
	if a.Mapping == nil {
		return nil
	}
	if len(a.Mapping) != len(p.Launches) {
		return fmt.Errorf("it maps %d launches, program %s has %d: compile it for this model", len(a.Mapping), p.Name,
			len(p.Launches))
	}
	for i, l := range p.Launches {
		m := a.Mapping[i]
		for _, f := range []struct {
			name       string
			have, want any
			equal      bool
		}{
			{"variant", m.Variant, l.Mapping.Variant, m.Variant == l.Mapping.Variant},
			{"tile", m.Tile, l.Mapping.Tile, slices.Equal(m.Tile, l.Mapping.Tile)},
			{"herd", m.Herd, l.Mapping.Herd, slices.Equal(m.Herd, l.Mapping.Herd)},
			{"layout", m.Layout, l.Mapping.Layout, m.Layout == l.Mapping.Layout},
			{"fused", m.Fused, l.Mapping.Fused, m.Fused == l.Mapping.Fused},
		} {
			if !f.equal {
				return fmt.Errorf("its launch %q has the %s %v, program %s has %v: compile it with the plan's "+
					"mapping, or plan with this one", l.Name, f.name, f.have, p.Name, f.want)
			}
		}
	}
	return nil
}

// matchInstance compares instance names. The instance of a program without Instance is its name,
// with or without the suffix for the number of rows ("o_ffn.512").
func (a *Artefact) matchInstance(p *npu.Program) error {
	plain, _, _ := strings.Cut(p.Name, ".")
	switch got := a.instance(); {
	case p.Instance != "" && got == p.Instance, p.Instance == "" && (got == p.Name || got == plain):
		return nil
	case p.Instance != "":
		return fmt.Errorf("its instance is %q, program %s needs %q: the array would hang", got,
			p.Name, p.Instance)
	default:
		return fmt.Errorf("its instance is %q, program %s needs its own name: the array would hang",
			got, p.Name)
	}
}

// headLayout returns the head layout of the program's attention, or "" if it has none.
func headLayout(p *npu.Program) string {
	for _, l := range p.Launches {
		if o, ok := l.Op.(op.Attention); ok {
			if o.HeadFirst {
				return headFirst
			}
			return seqFirst
		}
	}
	return ""
}

// maxBytes is the size limit of an argument: a DMA descriptor of the array addresses 4 GiB.
const maxBytes = 1 << 32

// argBytes returns the size of an argument without symbolic dimensions (see checkShapes).
func argBytes(a npu.Arg) int { return a.Type.Bytes((op.Size{}).Elements(a.Shape)) }

// checkShapes returns an error if the array cannot run p with any artefact, e.g. because the size
// of an argument depends on the run.
func checkShapes(p *npu.Program) error {
	for _, a := range p.Args {
		for _, d := range a.Shape {
			if d < 0 {
				return fmt.Errorf("npu/xdna: program %s: argument %q is %s: array programs have "+
					"fixed shapes", p.Name, a.Name, op.ShapeString(a.Shape))
			}
		}
		if a.Kind == npu.State {
			return fmt.Errorf("npu/xdna: program %s: argument %q is a State: only host programs "+
				"update a session's cache",
				p.Name, a.Name)
		}
		if n := argBytes(a); n > maxBytes {
			return fmt.Errorf("npu/xdna: program %s: argument %q has %d bytes, limit %d", p.Name,
				a.Name, n, maxBytes)
		}
	}
	if len(p.Args) == 0 || len(p.Args) > maxArguments {
		return fmt.Errorf("npu/xdna: program %s has %d arguments, want 1 to %d", p.Name,
			len(p.Args), maxArguments)
	}
	return nil
}
