package xdna

import (
	"errors"
	"fmt"
	"strings"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// ErrNoArtefact is returned if a program has not been compiled. The error that wraps it names the
// program and describes how to build it.
var ErrNoArtefact = errors.New("no artefact for the program")

// Find returns the artefact of a program: the one with its name. It returns an error that wraps
// [ErrNoArtefact] if there is none, and another error if a file is missing or if the manifest's
// instance, arguments or layout do not match the program.
func (s *Artefacts) Find(p *npu.Program) (*Artefact, error) {
	a := s.Get(p.Name)
	if a == nil {
		return nil, noArtefact(p, s.Dirs)
	}
	if err := a.match(p); err != nil {
		return nil, fmt.Errorf("npu/xdna: artefact %s: %w", a.Binary, err)
	}
	return a, a.Check()
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

// match returns an error if the manifest does not match the program.
func (a *Artefact) match(p *npu.Program) error {
	if a.ELF() {
		if err := a.matchInstance(p); err != nil {
			return err
		}
	}
	if a.Arguments != nil {
		if len(a.Arguments) != len(p.Args) {
			return fmt.Errorf("it has %d arguments, program %s has %d: compile it for this model "+
				"and sequence length",
				len(a.Arguments), p.Name, len(p.Args))
		}
		for i, arg := range p.Args {
			if n := argBytes(arg); n != a.Arguments[i] {
				return fmt.Errorf("argument %d has %d bytes, %q of program %s is %s %s with %d "+
					"bytes: compile it for this model and sequence length",
					i, a.Arguments[i], arg.Name, p.Name, arg.Type, op.ShapeString(arg.Shape), n)
			}
		}
	}
	if want := headLayout(p); a.Layout != "" && want != "" && a.Layout != want {
		return fmt.Errorf("its attention is %s, program %s is %s: the results would be garbage",
			a.Layout, p.Name, want)
	}
	return nil
}

// matchInstance compares instance names. The instance of a program without Instance is its name,
// with or without the suffix for the number of rows ("o_ffn.512").
func (a *Artefact) matchInstance(p *npu.Program) error {
	plain, _, _ := strings.Cut(p.Name, ".")
	switch got := a.Instance(); {
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
