package xdna

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// ErrNoArtefact is returned if a program has not been compiled. The error that wraps it names the
// program and describes how to build it.
var ErrNoArtefact = errors.New("no artefact for the program")

// ErrMismatch is returned if an artefact has a program's name but is for another one. The error that
// wraps it has the difference and what to do.
var ErrMismatch = errors.New("the artefact is for another program")

// find returns the artefact of a program; see [Device.Load].
func (s *Artefacts) find(p *npu.Program) (*Artefact, error) {
	a := s.Get(p.Name)
	if a == nil {
		return nil, noArtefact(p, s.Dirs)
	}
	if err := a.Check(); err != nil {
		return nil, err
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

// matchReach compares the arguments with what the transfers reach. A transfer past the end would
// overwrite other buffers, so it is an error whatever the manifest states. If it states no sizes, the
// arguments that the launches read or write must be reached to their ends.
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
		if arg.Kind != npu.Scratch && isUsed(p, i) && reach < int64(argBytes(arg)) {
			return fmt.Errorf("its transfers reach byte %d of argument %d, %s: compile it for this model and "+
				"sequence length, or, if it is, add \"arguments\", the bytes of each, to its entry in %s",
				reach, i, describeArg(p, i), manifestName)
		}
	}
	return nil
}

// isUsed reports whether a launch reads or writes an argument.
func isUsed(p *npu.Program, i int) bool {
	for _, l := range p.Launches {
		for _, v := range l.Args {
			if v.Arg == i {
				return true
			}
		}
	}
	return false
}

// matchLayout compares the head layout of attention. It must be known, because a wrong one computes
// noise.
func (a *Artefact) matchLayout(p *npu.Program) error {
	want := headLayout(p)
	if want == "" {
		return nil
	}
	have := a.Layout
	if have == "" {
		have = a.readLayout(p)
	}
	switch have {
	case want:
		return nil
	case "":
		return fmt.Errorf("its manifest states no layout of attention, and its transfers do not tell: if it was "+
			"compiled %s, add \"layout\": %q to its entry in %s; MLIR-AIR compiles seq-first for a head_dim of 64 "+
			"and for Llama-3.2-3B, and head-first for other models", want, want, manifestName)
	}
	return fmt.Errorf("its attention is %s, program %s is %s: the results would be noise", have, p.Name, want)
}

// readLayout returns the layout of attention that the pitches of its queries show, or "". In
// sequence-first queries the next row of a head follows after all heads, in head-first ones after
// one head, and the next head after all rows.
func (a *Artefact) readLayout(p *npu.Program) string {
	used, err := a.readUsage()
	if err != nil {
		return ""
	}
	for _, l := range p.Launches {
		o, ok := l.Op.(op.Attention)
		if !ok || l.Args[0].Arg >= len(used.Arguments) || o.Heads == 1 {
			continue
		}
		q := l.Args[0].Arg
		row := int64(p.Args[q].Type.Bytes(o.HeadDim))
		for _, pitch := range used.Arguments[q].Pitches {
			switch pitch {
			case row * int64(o.Heads):
				return seqFirst
			case row, row * int64(o.Rows):
				return headFirst
			}
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
		if m := a.Mapping[i]; !reflect.DeepEqual(m, l.Mapping) {
			return fmt.Errorf("it maps launch %q as %+v, program %s as %+v: compile it with the mapping of the plan, "+
				"or plan with this one", l.Name, m, p.Name, l.Mapping)
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
