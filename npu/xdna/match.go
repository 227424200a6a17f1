package xdna

import (
	"errors"
	"fmt"
	"strings"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// ErrNoArtefact says that a program has not been compiled. The error that wraps it names the program and says how it is built.
var ErrNoArtefact = errors.New("no artefact for the program")

// Find is the artefact of a program. It has the program's name, and what its manifest says about instance, arguments and layout must be the
// program's. An artefact that is not there is [ErrNoArtefact]; a file that is missing or arguments that differ are other errors.
func (s *Artefacts) Find(p *npu.Program) (*Artefact, error) {
	a := s.Get(p.Name)
	if a == nil {
		return nil, noArtefact(p, s.Dirs)
	}
	if err := a.fits(p); err != nil {
		return nil, fmt.Errorf("npu/xdna: artefact %s: %w", a.Binary, err)
	}
	return a, a.Check()
}

func noArtefact(p *npu.Program, dirs []string) error {
	where := "no folder of artefacts was given"
	if len(dirs) > 0 {
		where = "not in " + strings.Join(dirs, ", ")
	}
	return fmt.Errorf("npu/xdna: program %s (%d arguments, %d launches): %w: %s. MLIR-AIR builds those of its language models: in "+
		"programming_examples/llms/MODEL, `make verify` leaves prefill_kernel_cache and decode_kernel_cache under build_peano, and build_peano is the "+
		"folder to give. For other programs name a compile command (npukit's --compile, Options.Compile of package npu/xdna)", p.Name, len(p.Args), len(p.Launches),
		ErrNoArtefact, where)
}

// fits holds what a manifest says against the program.
func (a *Artefact) fits(p *npu.Program) error {
	if a.ELF() {
		if err := a.fitsInstance(p); err != nil {
			return err
		}
	}
	if a.Arguments != nil {
		if len(a.Arguments) != len(p.Args) {
			return fmt.Errorf("it has %d arguments, program %s has %d: was it compiled for another model or sequence length?",
				len(a.Arguments), p.Name, len(p.Args))
		}
		for i, arg := range p.Args {
			if n := argBytes(arg); n != a.Arguments[i] {
				return fmt.Errorf("argument %d has %d bytes, %q of program %s is %s %s and has %d: was it compiled for another model or sequence length?",
					i, a.Arguments[i], arg.Name, p.Name, arg.Type, op.ShapeString(arg.Shape), n)
			}
		}
	}
	if want := headLayout(p); a.Layout != "" && want != "" && a.Layout != want {
		return fmt.Errorf("its attention is %s, program %s is %s: the sizes are equal and the results would be noise", a.Layout, p.Name, want)
	}
	return nil
}

// fitsInstance compares names. A program without an instance of its own has its name, less the number of rows that tells it from its
// siblings of other lengths ("o_ffn.512"): the compiler may know it under either.
func (a *Artefact) fitsInstance(p *npu.Program) error {
	plain, _, _ := strings.Cut(p.Name, ".")
	switch got := a.Instance(); {
	case p.Instance != "" && got == p.Instance, p.Instance == "" && (got == p.Name || got == plain):
		return nil
	case p.Instance != "":
		return fmt.Errorf("its instance is %q, program %s is the instance %q: with another one the array waits for ever", got, p.Name, p.Instance)
	default:
		return fmt.Errorf("its instance is %q, that of program %s is its name: with another one the array waits for ever", got, p.Name)
	}
}

// headLayout is how the program's attention wants its heads, "" without attention.
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

// maxBytes bounds an argument: a descriptor of the array's DMAs reaches 4 GiB of a buffer.
const maxBytes = 1 << 32

// argBytes is the size of an argument, which has no symbolic dimensions (see fixed).
func argBytes(a npu.Arg) int { return a.Type.Bytes((op.Size{}).Elements(a.Shape)) }

// fixed reports what of a program the array could not run whatever its artefact: arguments whose size depends on the run.
func fixed(p *npu.Program) error {
	for _, a := range p.Args {
		for _, d := range a.Shape {
			if d < 0 {
				return fmt.Errorf("npu/xdna: program %s: argument %q is %s: programs of the array have fixed shapes", p.Name, a.Name, op.ShapeString(a.Shape))
			}
		}
		if a.Kind == npu.State {
			return fmt.Errorf("npu/xdna: program %s: argument %q is a state: no program of the array updates a session's cache, the host does",
				p.Name, a.Name)
		}
		if n := argBytes(a); n > maxBytes {
			return fmt.Errorf("npu/xdna: program %s: argument %q has %d bytes: a descriptor of the array reaches %d", p.Name, a.Name, n, maxBytes)
		}
	}
	if len(p.Args) == 0 || len(p.Args) > maxArguments {
		return fmt.Errorf("npu/xdna: program %s has %d arguments, want 1 to %d", p.Name, len(p.Args), maxArguments)
	}
	return nil
}
