package npu

import (
	"fmt"
	"slices"

	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// Kind is the purpose of an argument. The runtime derives every transfer and sync from it.
type Kind uint8

const (
	In    Kind = iota // written by the host or another program before each run
	Out               // written by the program, read by the host or another program
	Const             // weights and tables: written once
	State             // updated in place and kept across runs, one per session: the KV cache
	// Scratch is written and read inside the program only. It may be unused, as in real artifacts.
	Scratch
)

var kindNames = [...]string{In: "in", Out: "out", Const: "const", State: "state",
	Scratch: "scratch"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// MarshalText encodes the kind as a word.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText parses a kind.
func (k *Kind) UnmarshalText(b []byte) error {
	i := slices.Index(kindNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("npu: unknown kind %q, want one of %v", b, kindNames)
	}
	*k = Kind(i)
	return nil
}

// Arg is an argument of a program. Its index in Program.Args is its index on the device.
type Arg struct {
	Name  string     `json:"name"`
	Kind  Kind       `json:"kind"`
	Type  dtype.Type `json:"type"`
	Shape []int      `json:"shape"` // dimensions, possibly symbolic (op.Rows, ...)

	// ScratchRows is the number of leading rows of a Const argument that the program writes before
	// it reads them. One real artifact has a scratch row before a norm weight; otherwise it is 0.
	ScratchRows int `json:"scratch_rows,omitempty"`
}

// View is an argument or a part of it: rows of Shape[1:] elements, Stride elements apart, starting
// at Offset. A Stride of 0 means contiguous rows.
type View struct {
	Arg    int   `json:"arg"`
	Offset int   `json:"offset,omitempty"` // elements
	Shape  []int `json:"shape,omitempty"`  // nil means the argument's own
	Stride int   `json:"stride,omitempty"` // elements from row to row
}

// Launch is one op with its arguments.
type Launch struct {
	// Name names the op's output, such as "attn.q_rope". Prefixed with the run's name it is the tap
	// name.
	Name    string
	Op      op.Op
	Args    []View  // one per operand of the op, in order
	Mapping Mapping // placement on the array; software devices ignore it
}

// Mapping is the placement of a launch on a spatial array. The virtual device checks it, and the
// real one finds artifacts by it.
//
// A kernel on the array may compute several ops: adjacent launches with equal Fused are one kernel,
// which is started once and keeps intermediate values in the cores.
type Mapping struct {
	Variant string `json:"variant,omitempty"` // kernel variant: "fused-cast", "drain", "gemv"
	Tile    []int  `json:"tile,omitempty"`    // tile sizes in the kernel's order
	Herd    []int  `json:"herd,omitempty"`    // columns and rows of cores
	Layout  string `json:"layout,omitempty"`  // "seq-first" or "head-first", if a kernel has both
	Fused   string `json:"fused,omitempty"`   // name of the kernel shared with adjacent launches
}

// Program is a list of launches merged into one dispatch. Build it with [NewProgram] and its
// methods, which check as they go; Err returns the first error. A program must not be changed after
// it has been loaded, and is then safe for concurrent use.
type Program struct {
	Name     string
	Instance string // the kernel's name inside an artifact, if it differs from Name
	Args     []Arg
	Launches []Launch

	err error
}

// NewProgram returns an empty program.
func NewProgram(name string) *Program {
	p := &Program{Name: name}
	if name == "" {
		p.fail(&ProgramError{Reason: "no name"})
	}
	return p
}

// Ref is a view of an argument, to pass to [Program.Launch].
type Ref struct {
	p    *Program
	view View
}

// In adds an argument that is written before each run. An argument's position is its index on the
// device.
func (p *Program) In(name string, t dtype.Type, shape ...int) Ref {
	return p.Arg(In, name, t, shape...)
}

// Out adds an argument that the program writes for others to read.
func (p *Program) Out(name string, t dtype.Type, shape ...int) Ref {
	return p.Arg(Out, name, t, shape...)
}

// Const adds a weight or table.
func (p *Program) Const(name string, t dtype.Type, shape ...int) Ref {
	return p.Arg(Const, name, t, shape...)
}

// State adds an argument that each session has its own buffer for.
func (p *Program) State(name string, t dtype.Type, shape ...int) Ref {
	return p.Arg(State, name, t, shape...)
}

// Scratch adds an argument for values between launches. It may be unused.
func (p *Program) Scratch(name string, t dtype.Type, shape ...int) Ref {
	return p.Arg(Scratch, name, t, shape...)
}

// Arg adds an argument of any kind.
func (p *Program) Arg(kind Kind, name string, t dtype.Type, shape ...int) Ref {
	p.Args = append(p.Args, Arg{Name: name, Kind: kind, Type: t, Shape: slices.Clone(shape)})
	p.fail(checker{p}.checkArg(len(p.Args) - 1))
	return Ref{p: p, view: View{Arg: len(p.Args) - 1}}
}

// WithScratchRows sets Arg.ScratchRows of a Const argument.
func (r Ref) WithScratchRows(n int) Ref {
	r.p.Args[r.view.Arg].ScratchRows = n
	r.p.fail(checker{r.p}.checkArg(r.view.Arg))
	return r
}

// Rows returns the view of n rows starting at from; of a vector, n elements.
func (r Ref) Rows(from, n int) Ref {
	shape, stride := r.p.viewShape(r.view)
	if len(shape) == 1 {
		stride = 1
	}
	if len(shape) < 1 || from < 0 || n <= 0 || shape[0] < 0 || from > shape[0]-n {
		r.bad("it is %s: rows %d to %d are out of range", op.ShapeString(shape), from, from+n)
		return r
	}
	v := r.view
	v.Offset += from * stride
	v.Shape = append([]int{n}, shape[1:]...)
	return Ref{r.p, v}
}

// Every returns the view of every n-th row starting at from. The gate and up rows of an interleaved
// matrix are Every(0, 2) and Every(1, 2).
func (r Ref) Every(from, n int) Ref {
	shape, stride := r.p.viewShape(r.view)
	if len(shape) != 2 || from < 0 || n <= 0 || from >= n || shape[0] < 0 || shape[0]%n != 0 {
		r.bad("it is %s: every %d rows from row %d is not a view of it", op.ShapeString(shape), n, from)
		return r
	}
	v := r.view
	v.Offset += from * stride
	v.Shape = []int{shape[0] / n, shape[1]}
	v.Stride = n * stride
	return Ref{r.p, v}
}

// Cols returns the view of n columns starting at from.
func (r Ref) Cols(from, n int) Ref {
	shape, stride := r.p.viewShape(r.view)
	if len(shape) != 2 || from < 0 || n <= 0 || from > shape[1]-n {
		r.bad("it is %s: columns %d to %d are out of range", op.ShapeString(shape), from, from+n)
		return r
	}
	v := r.view
	v.Offset += from
	v.Shape = []int{shape[0], n}
	v.Stride = stride
	return Ref{r.p, v}
}

// As returns the same elements with another shape, for example a flat [S*emb] as [S, emb].
func (r Ref) As(shape ...int) Ref {
	old, stride := r.p.viewShape(r.view)
	var all op.Size
	all.Rows, all.Picks, all.Capacity = 1, 1, 1
	if len(old) > 1 && stride != all.Elements(old[1:]) || all.Elements(old) != all.Elements(shape) ||
		symbols(old) != symbols(shape) {
		r.bad("it is %s and cannot be viewed as %s", op.ShapeString(old), op.ShapeString(shape))
		return r
	}
	v := r.view
	v.Shape = slices.Clone(shape)
	v.Stride = 0
	return Ref{r.p, v}
}

// bad records a view that the argument does not have.
func (r Ref) bad(format string, args ...any) {
	name := r.p.Args[r.view.Arg].Name
	r.p.fail(&ProgramError{Program: r.p.Name, Arg: name, Reason: fmt.Sprintf(format, args...)})
}

// symbols counts the symbolic dimensions by symbol.
func symbols(shape []int) (n [3]int) {
	for _, d := range shape {
		if d < 0 && d >= op.Capacity {
			n[-d-1]++
		}
	}
	return n
}

// Launch adds a launch of o with one argument per operand, in order.
func (p *Program) Launch(name string, o op.Op, args ...Ref) {
	l := Launch{Name: name, Op: o}
	for _, a := range args {
		if a.p != p {
			p.fail(p.badLaunch(name, "an argument belongs to another program"))
			return
		}
		l.Args = append(l.Args, a.view)
	}
	p.Launches = append(p.Launches, l)
	last := len(p.Launches) - 1
	p.fail(checker{p}.checkLaunch(last, newCoverage(p, last)))
}

// Map sets the mapping of the last launch.
func (p *Program) Map(m Mapping) {
	n := len(p.Launches)
	if n == 0 {
		p.fail(p.badLaunch("", "Map was called before the first Launch"))
		return
	}
	p.Launches[n-1].Mapping = m
}

// Err returns the first error in building the program, or outputs that no launch writes. A nil
// program is an error too.
func (p *Program) Err() error {
	if p == nil {
		return &ProgramError{Reason: "it is nil"}
	}
	if p.err != nil {
		return p.err
	}
	return p.validate()
}

// badLaunch returns an error about a launch, or about the program if launch is "".
func (p *Program) badLaunch(launch, format string, args ...any) error {
	return &ProgramError{Program: p.Name, Launch: launch, Reason: fmt.Sprintf(format, args...)}
}

func (p *Program) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// LooksUp reports whether the program's launches use an argument as an embedding only.
func (p *Program) LooksUp(arg int) bool {
	found := false
	for _, l := range p.Launches {
		for i, v := range l.Args {
			if v.Arg != arg {
				continue
			}
			if _, ok := l.Op.(op.Embed); !ok || i != 1 {
				return false
			}
			found = true
		}
	}
	return found
}

// Shape returns the shape of a view as its launch sees it, and the distance between rows in
// elements (0 for one dimension).
func (p *Program) Shape(v View) (shape []int, stride int) { return p.viewShape(v) }

func (p *Program) viewShape(v View) (shape []int, stride int) {
	shape = v.Shape
	if shape == nil {
		shape = p.Args[v.Arg].Shape
	}
	stride = v.Stride
	if stride == 0 && len(shape) > 1 {
		stride = 1
		for _, d := range shape[1:] {
			stride *= d // a capacity makes it negative: such arguments have no partial views
		}
	}
	return shape, stride
}
