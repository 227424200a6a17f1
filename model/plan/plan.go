package plan

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/npukit/npukit/internal/readfile"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/internal/hostvalue"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// version is the version of the plan format that this package writes and reads.
const version = 2

// Plan maps one checkpoint onto one kind of device: its programs, the order in which prefill and
// decode dispatch them, and the source of each argument's bytes. [New] and [NewNPU] make plans,
// [Read] reads one from JSON, and package model runs them.
type Plan struct {
	Version     int            `json:"version"`
	Status      Status         `json:"status,omitempty"` // "" if no deployment made the plan
	Model       Identity       `json:"model"`
	Device      string         `json:"device"`      // kind of device ("cpu") or array ("xdna2")
	SeqLen      int            `json:"seq_len"`     // positions of a session
	Chunk       int            `json:"chunk"`       // most rows of a prompt in one pass
	Activations dtype.Type     `json:"activations"` // of the left operand of matrix products
	Cache       dtype.Type     `json:"cache"`       // of the KV cache
	Values      []Value        `json:"values"`
	Programs    []*npu.Program `json:"programs"`
	Prefill     []Pass         `json:"prefill"` // by ascending Rows
	Decode      Pass           `json:"decode"`
	Runtime     Runtime        `json:"runtime,omitzero"` // used to price the plan
}

// Pass is the dispatches that run some rows through the model.
//
// On a device that takes any number of rows, one pass does everything and Rows is 0. NPU programs
// are compiled for a number of rows: a prompt is padded to the smallest Rows that holds it and
// starts at position 0, and in Decode Rows is 1, at any position. The host pads its values with
// zeros; attention is causal, so no row sees the padding. Host steps have as many rows as there are
// tokens.
type Pass struct {
	Rows  int     `json:"rows,omitempty"`
	Cost  float64 `json:"cost_s,omitempty"` // predicted seconds; only used to choose between passes
	Steps []Step  `json:"steps"`            // from ids to the last layer's residual stream
	// Head computes the logits of picked rows from the residual stream. It runs once for all picked
	// rows if Rows is 0, and once for each otherwise.
	Head []Step `json:"head"`
}

// Identity is the part of a checkpoint's configuration that a plan depends on. A plan is valid only
// for checkpoints with the same Identity.
type Identity struct {
	Family  string `json:"family"`
	Layers  int    `json:"layers"`
	Hidden  int    `json:"hidden"`
	Heads   int    `json:"heads"`
	KVHeads int    `json:"kv_heads"`
	HeadDim int    `json:"head_dim"`
	FFN     int    `json:"ffn"`
	Vocab   int    `json:"vocab"`
}

// identity returns the Identity of a configuration.
func identity(c *checkpoint.Config) Identity {
	return Identity{c.Family, c.Layers, c.Hidden, c.Heads, c.KVHeads, c.HeadDim, c.FFN, c.Vocab}
}

// Value is a buffer between programs, or between the host and a program.
//
// Every plan has the values that the host fills or reads: "ids" [rows], the tokens; "rope"
// [rows headDim], the cosines and sines of their positions; "picks" [picks], the rows whose logits
// are wanted; and "logits" [picks vocab]. The host also fills each value named "rope.X" with the
// cosines and sines of the rows' positions, repeated side by side, once for each head that a row has
// room for.
type Value struct {
	Name  string     `json:"name"`
	Type  dtype.Type `json:"type"`
	Shape []int      `json:"shape"` // may have one open dimension, op.Rows or op.Picks
}

// arrayXDNA2 is the array of NPU plans, as in [npu.Info].
const arrayXDNA2 = "xdna2"

// The two sides that a step can run on.
const (
	OnDevice = "npu"
	OnHost   = "host"
)

// Step is one dispatch of a phase.
type Step struct {
	Name    string    `json:"name"` // "layer.3": prefix of the tap names of its launches
	Program string    `json:"program"`
	On      string    `json:"on"`   // OnDevice or OnHost
	Args    []Binding `json:"args"` // one for each argument of the program
}

// Binding is the source of an argument's bytes. At most one field is set; none is set for scratch
// memory, which the device provides. The table "rope.table", BF16 [seq_len headDim], has the cosines
// and sines of each position.
type Binding struct {
	Value string      // name of a value of the plan
	Const *npu.Layout // a weight of the checkpoint or "rope.table", in some layout
	State string      // name of a cache of the session, such as "k.3"
}

// MarshalText implements [encoding.TextMarshaler]. It writes "value:x", "const:LAYOUT", "state:k.3"
// or "scratch".
func (b Binding) MarshalText() ([]byte, error) {
	switch {
	case b.Value != "":
		return []byte("value:" + b.Value), nil
	case b.Const != nil:
		return []byte("const:" + b.Const.String()), nil
	case b.State != "":
		return []byte("state:" + b.State), nil
	}
	return []byte("scratch"), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler]. It accepts the output of MarshalText.
func (b *Binding) UnmarshalText(text []byte) error {
	kind, rest, _ := strings.Cut(string(text), ":")
	*b = Binding{}
	switch {
	case kind == "value" && rest != "":
		b.Value = rest
	case kind == "state" && rest != "":
		b.State = rest
	case kind == "const":
		l, err := npu.ParseLayout(rest)
		if err != nil {
			return err
		}
		b.Const = &l
	case string(text) != "scratch":
		return fmt.Errorf("plan: binding %q, want value:NAME, const:LAYOUT, state:NAME or scratch", text)
	}
	return nil
}

// maxBytes bounds the size of a plan file. The longest plan of the published models, one op per
// dispatch in all layers of Qwen3-4B, has 370 KB.
const maxBytes = 64 << 20

// Read reads a plan from a file and validates it.
func Read(path string) (*Plan, error) {
	data, err := readfile.Regular(path, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	p, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("plan: %s: %w", path, err)
	}
	return p, nil
}

// parse reads a plan's JSON and validates it.
func parse(data []byte) (*Plan, error) {
	var p Plan
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(&p)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("trailing data after the JSON object")
		}
	}
	syntax := (*json.SyntaxError)(nil)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf(
			"the file ends after %d bytes, within the JSON object: make the plan again", len(data))
	case errors.As(err, &syntax):
		line := 1 + bytes.Count(data[:min(int(syntax.Offset), len(data))], []byte("\n"))
		return nil, fmt.Errorf("line %d is not valid JSON: %w", line, err)
	case err != nil:
		return nil, err
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return &p, nil
}

// Program returns the program of that name, or nil.
func (p *Plan) Program(name string) *npu.Program {
	for _, q := range p.Programs {
		if q.Name == name {
			return q
		}
	}
	return nil
}

// Validate checks that steps name programs of the plan, and that every argument has a binding of
// the right kind; for values and state, also of the right type and shape. Types and shapes of
// weights are checked when package model opens the plan with a checkpoint.
func (p *Plan) Validate() error {
	switch {
	case p.Version != version:
		return fmt.Errorf("version is %d, this npukit reads %d: make the plan again", p.Version, version)
	case !p.Status.valid():
		return fmt.Errorf("status is %q, want draft, accepted, failed or none", p.Status)
	case p.SeqLen <= 0 || p.SeqLen > maxPositions || p.Chunk <= 0 || p.Chunk > maxPositions:
		return fmt.Errorf("seq_len is %d and chunk %d, both must be 1 to %d", p.SeqLen, p.Chunk,
			maxPositions)
	case p.Activations != dtype.BF16 && p.Activations != dtype.F32:
		return fmt.Errorf("activations are %s, want BF16 or F32", p.Activations)
	case p.Cache != dtype.BF16 && p.Cache != dtype.F16 && p.Cache != dtype.F32:
		return fmt.Errorf("cache is %s, want BF16, F16 or F32", p.Cache)
	case len(p.Prefill) == 0:
		return errors.New("no prefill pass")
	}
	values := map[string]Value{}
	for _, v := range p.Values {
		if _, twice := values[v.Name]; twice || v.Name == "" || !v.Type.Valid() || v.Type.Quantized() ||
			!validShape(v.Shape) {
			return fmt.Errorf("value %q is malformed or listed twice", v.Name)
		}
		values[v.Name] = v
	}
	if err := p.checkHostValues(values); err != nil {
		return err
	}
	programs := map[string]*npu.Program{}
	for _, q := range p.Programs {
		if q == nil || programs[q.Name] != nil {
			return errors.New("a program is null or listed twice")
		}
		if err := q.Err(); err != nil {
			return err
		}
		programs[q.Name] = q
	}
	if err := p.checkRows(); err != nil {
		return err
	}
	side := map[string]string{}
	var written map[string]bool // states that the first pass writes
	for i, pass := range p.Passes() {
		states, err := p.checkPass(pass, programs, values, side)
		switch {
		case err != nil:
			return err
		case i == 0:
			written = states
		case !maps.Equal(written, states):
			return fmt.Errorf(
				"the passes of %d and %d rows write different states: all passes must write the same ones",
				pass.Rows, p.Prefill[0].Rows)
		}
	}
	return nil
}

// Passes returns the prefill passes and then the decode pass.
func (p *Plan) Passes() []Pass { return append(slices.Clone(p.Prefill), p.Decode) }

// allSteps returns the steps of the pass in execution order, the head last.
func (p Pass) allSteps() []Step { return slices.Concat(p.Steps, p.Head) }

// checkRows checks the number of rows of each pass.
func (p *Plan) checkRows() error {
	open := p.Prefill[0].Rows == 0
	if open && (len(p.Prefill) > 1 || p.Decode.Rows != 0) || !open && p.Decode.Rows != 1 {
		return errors.New("rows: want one prefill pass and a decode pass of 0 rows (any), or prefill passes of " +
			"fixed rows and a decode pass of 1")
	}
	for i, pass := range p.Passes() {
		switch {
		case len(pass.Steps) == 0 || len(pass.Head) == 0:
			return fmt.Errorf("the pass of %d rows needs steps and a head", pass.Rows)
		case pass.Rows < 0 || pass.Rows > p.SeqLen:
			return fmt.Errorf("a pass has %d rows, the plan %d positions", pass.Rows, p.SeqLen)
		case !open && i > 0 && i < len(p.Prefill) && pass.Rows <= p.Prefill[i-1].Rows:
			return fmt.Errorf("a prefill pass of %d rows comes after one of %d: want ascending numbers",
				pass.Rows, p.Prefill[i-1].Rows)
		case !(pass.Cost >= 0) || math.IsInf(pass.Cost, 0):
			return fmt.Errorf("the pass of %d rows has a cost of %g s", pass.Rows, pass.Cost)
		}
	}
	return nil
}

// checkPass checks the steps of a pass, that each value and state is written before it is read, and
// that each state is written once. It returns the states that the pass writes. side maps each state
// to the side of the steps that use it.
func (p *Plan) checkPass(pass Pass, programs map[string]*npu.Program, values map[string]Value,
	side map[string]string,
) (kept map[string]bool, err error) {
	kept = map[string]bool{}
	written := map[string]bool{}
	for name := range values {
		written[name] = name != hostvalue.Logits && hostvalue.Is(name)
	}
	for i, s := range pass.allSteps() {
		prog := programs[s.Program]
		if err := p.checkStep(s, prog, pass, values); err != nil {
			return nil, err
		}
		head := i >= len(pass.Steps)
		for j, a := range prog.Args {
			name := s.Args[j].Value
			if !head && (name == hostvalue.Picks || slices.Contains(a.Shape, op.Picks)) {
				return nil, fmt.Errorf("step %s, argument %q: only the head can pick rows", s.Name, a.Name)
			}
			switch a.Kind {
			case npu.In:
				if !written[name] {
					return nil, fmt.Errorf(
						"step %s reads value %q, which no earlier step of its pass writes", s.Name,
						name)
				}
			case npu.Out:
				if name != hostvalue.Logits && hostvalue.Is(name) {
					return nil, fmt.Errorf("step %s writes value %q, which the host fills", s.Name, name)
				}
				written[name] = true
			case npu.State:
				state := s.Args[j].State
				if head {
					return nil, fmt.Errorf(
						"step %s of the head uses state: only steps before the head can", s.Name)
				}
				if at := side[state]; at != "" && at != s.On {
					return nil, fmt.Errorf(
						"step %s uses state %q on the %s, another step uses it on the %s", s.Name,
						state, s.On, at)
				}
				side[state] = s.On
				switch writes := writesArg(prog, j); {
				case writes && kept[state]:
					return nil, fmt.Errorf(
						"step %s writes state %q, which an earlier step of its pass writes", s.Name,
						state)
				case !writes && !kept[state]:
					return nil, fmt.Errorf(
						"step %s reads state %q, which no earlier step of its pass writes", s.Name,
						state)
				}
				kept[state] = true
			}
		}
	}
	if !written[hostvalue.Logits] {
		return nil, fmt.Errorf("the pass of %d rows writes no logits", pass.Rows)
	}
	return kept, nil
}

// writesArg reports whether a launch of the program writes its i-th argument.
func writesArg(p *npu.Program, i int) bool {
	return slices.ContainsFunc(p.Launches, func(l npu.Launch) bool {
		for j, o := range l.Op.Operands() {
			if o.Write && l.Args[j].Arg == i {
				return true
			}
		}
		return false
	})
}

// maxPositions bounds the positions of a plan. It is far above any model's context and low enough
// that sizes do not overflow.
const maxPositions = 1 << 24

// validShape reports whether a value's shape has at most one open dimension and a size in range.
func validShape(shape []int) bool {
	n, open := 1, 0
	for _, d := range shape {
		switch {
		case d == op.Rows || d == op.Picks:
			open++
		case d < 1 || d > (1<<32)/n:
			return false
		default:
			n *= d
		}
	}
	return len(shape) > 0 && open <= 1
}

// checkHostValues checks the types and shapes of the values that the host fills and reads.
func (p *Plan) checkHostValues(values map[string]Value) error {
	for _, want := range []Value{
		{hostvalue.IDs, dtype.I32, []int{op.Rows}},
		{hostvalue.RoPE, dtype.F32, []int{op.Rows, p.Model.HeadDim}},
		{hostvalue.Picks, dtype.I32, []int{op.Picks}},
		{hostvalue.Logits, dtype.F32, []int{op.Picks, p.Model.Vocab}},
	} {
		got, ok := values[want.Name]
		if !ok || got.Type != want.Type || !slices.Equal(got.Shape, want.Shape) {
			return fmt.Errorf("value %q must be %s %s, because the host fills or reads it",
				want.Name, want.Type, op.ShapeString(want.Shape))
		}
	}
	for _, v := range values {
		if hostvalue.IsRoPE(v.Name) && (v.Type != dtype.F32 && v.Type != dtype.BF16 ||
			sizeOf(v.Type, v.Shape)%v.Type.Bytes(p.Model.HeadDim) != 0) {
			return fmt.Errorf(
				"value %q must be F32 or BF16 with whole rows of %d cosines and sines, because the host fills it",
				v.Name, p.Model.HeadDim)
		}
	}
	return nil
}

func (p *Plan) checkStep(s Step, prog *npu.Program, pass Pass, values map[string]Value) error {
	if prog == nil {
		return fmt.Errorf("step %s: unknown program %q", s.Name, s.Program)
	}
	if s.On != OnDevice && s.On != OnHost {
		return fmt.Errorf("step %s: on is %q, want %s or %s", s.Name, s.On, OnDevice, OnHost)
	}
	if len(s.Args) != len(prog.Args) {
		return fmt.Errorf("step %s: program %s has %d arguments, the step binds %d",
			s.Name, prog.Name, len(prog.Args), len(s.Args))
	}
	for i, a := range prog.Args {
		b := s.Args[i]
		ok := false
		switch a.Kind {
		case npu.In, npu.Out:
			v, found := values[b.Value]
			ok = found && v.Type == a.Type && fits(v, a, s, pass)
		case npu.Const:
			ok = b.Const != nil
		case npu.State:
			ok = b.State != "" && a.Type == p.Cache &&
				slices.Equal(a.Shape, []int{p.Model.KVHeads, op.Capacity, p.Model.HeadDim})
		case npu.Scratch:
			ok = b == Binding{}
		}
		if !ok {
			text, _ := b.MarshalText()
			return fmt.Errorf("step %s: argument %q of program %s is %s %s %s, which does not match %q",
				s.Name, a.Name, prog.Name, a.Kind, a.Type,
				op.ShapeString(a.Shape), text)
		}
	}
	return nil
}

// fits reports whether a value has as many elements as an argument. A value of fixed shape also
// fits an argument with open rows, if the step runs on the host and the value has room for all rows
// of the pass.
func fits(v Value, a npu.Arg, s Step, pass Pass) bool {
	have, want := sizeOf(v.Type, v.Shape), sizeOf(a.Type, a.Shape)
	if openDim(v.Shape) == openDim(a.Shape) {
		return have == want
	}
	return s.On == OnHost && openDim(v.Shape) == 0 && pass.Rows > 0 && have%want == 0 &&
		(openDim(a.Shape) == op.Picks || have/want >= pass.Rows)
}

// openDim returns the open dimension of a shape, or 0 if there is none.
func openDim(shape []int) int {
	if i := slices.IndexFunc(shape, func(d int) bool { return d < 0 }); i >= 0 {
		return shape[i]
	}
	return 0
}

// Check validates the plan and returns an error if it is for another model or another kind of
// device.
func (p *Plan) Check(c *checkpoint.Config, info npu.Info) error {
	if err := p.checkModel(c); err != nil {
		return err
	}
	// Programs of fixed rows are compiled for an array, but a device that takes any rows runs them
	// too.
	if p.Device != info.Kind && p.Device != info.Array && !(info.AnyRows && p.Prefill[0].Rows > 0) {
		return fmt.Errorf("plan: the plan is for %s, device %s executes plans for %s: make one for it",
			p.Device, info.Kind, cmp.Or(info.Array, info.Kind))
	}
	return nil
}

// checkModel validates the plan and returns an error if it is for another model.
func (p *Plan) checkModel(c *checkpoint.Config) error {
	if c == nil {
		return &OptionError{"c", nil, "a model's configuration"}
	}
	if err := p.Validate(); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	if p.SeqLen > c.Context {
		return fmt.Errorf("plan: the plan has a sequence length of %d, the checkpoint a context of %d",
			p.SeqLen, c.Context)
	}
	if got := identity(c); p.Model != got {
		return fmt.Errorf("plan: the plan is for %+v, the checkpoint is %+v", p.Model, got)
	}
	return nil
}
