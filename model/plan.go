package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// PlanVersion is the version of the plan format that this package writes and reads.
const PlanVersion = 1

// Plan says how one checkpoint runs on one kind of device: which programs there are, in which order a phase dispatches them, and where every
// argument's bytes come from. It is made by [NewPlan], kept as JSON, and loaded by [Open].
type Plan struct {
	Version     int            `json:"version"`
	Model       Identity       `json:"model"`
	Device      string         `json:"device"`      // the kind of device it was made for
	SeqLen      int            `json:"seq_len"`     // positions that a session may use
	Chunk       int            `json:"chunk"`       // rows of a prompt that one pass takes at most
	Activations dtype.Type     `json:"activations"` // type of what enters a matrix product
	Cache       dtype.Type     `json:"cache"`       // type of the KV cache
	Values      []Value        `json:"values"`
	Programs    []*npu.Program `json:"programs"`
	Prefill     []Step         `json:"prefill"`
	Decode      []Step         `json:"decode"`
}

// Identity is what a plan must agree on with the checkpoint that it is used for.
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

// identity is the Identity of a configuration.
func identity(c *checkpoint.Config) Identity {
	return Identity{c.Family, c.Layers, c.Hidden, c.Heads, c.KVHeads, c.HeadDim, c.FFN, c.Vocab}
}

// Value is a buffer between programs, or between the host and a program.
type Value struct {
	Name  string     `json:"name"`
	Type  dtype.Type `json:"type"`
	Shape []int      `json:"shape"` // dimensions, possibly symbolic
}

// Values that the host fills or reads. Every plan uses these names.
const (
	ValueIDs    = "ids"    // [rows] token ids
	ValueRoPE   = "rope"   // [rows headDim] cosines and sines of the rows' positions
	ValuePicks  = "picks"  // [picks] rows whose logits are wanted
	ValueLogits = "logits" // [picks vocab]
)

// Step is one dispatch of a phase.
type Step struct {
	Name    string    `json:"name"` // "layer.3": prefix of the tap names of its launches
	Program string    `json:"program"`
	On      string    `json:"on"`   // "npu" (the device) or "host"
	Args    []Binding `json:"args"` // one for each argument of the program
}

// Binding says where an argument's bytes come from. Exactly one field is set, none for scratch that the device provides.
type Binding struct {
	Value string      // a value of the plan
	Const *npu.Layout // a weight of the checkpoint
	State string      // a cache of the session: "k.3", "v.3"
}

// MarshalText writes "value:x", "const:LAYOUT", "state:k.3" or "scratch".
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

// UnmarshalText is the inverse of MarshalText.
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
		return fmt.Errorf("model: binding %q is none of value:NAME, const:LAYOUT, state:NAME, scratch", text)
	}
	return nil
}

// ReadPlan reads a plan from a file and validates it.
func ReadPlan(path string) (*Plan, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("model: reading the plan: %w", err)
	}
	var p Plan
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return nil, fmt.Errorf("model: plan %s: %w", path, err)
	}
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("model: plan %s: %w", path, err)
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

// Validate checks that steps name programs of the plan and that every argument has a binding of its kind, and for values and state of its type and shape. Whether
// weights have the type and shape of theirs shows when the plan meets a checkpoint, in [Open].
func (p *Plan) Validate() error {
	switch {
	case p.Version != PlanVersion:
		return fmt.Errorf("version is %d, this npukit reads %d: make the plan again", p.Version, PlanVersion)
	case p.SeqLen <= 0 || p.SeqLen > maxPositions || p.Chunk <= 0 || p.Chunk > maxPositions:
		return fmt.Errorf("seq_len is %d and chunk %d, both must be 1 to %d", p.SeqLen, p.Chunk, maxPositions)
	case p.Activations != dtype.BF16 && p.Activations != dtype.F32:
		return fmt.Errorf("activations are %s, want BF16 or F32", p.Activations)
	case p.Cache != dtype.BF16 && p.Cache != dtype.F16 && p.Cache != dtype.F32:
		return fmt.Errorf("cache is %s, want BF16, F16 or F32", p.Cache)
	case len(p.Prefill) == 0 || len(p.Decode) == 0:
		return errors.New("a plan needs steps for prefill and for decode")
	}
	values := map[string]Value{}
	for _, v := range p.Values {
		if _, twice := values[v.Name]; twice || v.Name == "" || !v.Type.Valid() || v.Type.Quantized() || !validShape(v.Shape) {
			return fmt.Errorf("value %q is malformed or there twice", v.Name)
		}
		values[v.Name] = v
	}
	if err := p.checkHostValues(values); err != nil {
		return err
	}
	programs := map[string]*npu.Program{}
	for _, q := range p.Programs {
		if q == nil || programs[q.Name] != nil {
			return errors.New("a program is null or there twice")
		}
		if err := q.Validate(); err != nil {
			return err
		}
		programs[q.Name] = q
	}
	for _, phase := range [][]Step{p.Prefill, p.Decode} {
		for _, s := range phase {
			if err := p.checkStep(s, programs[s.Program], values); err != nil {
				return err
			}
		}
		if err := p.checkPicks(phase); err != nil {
			return err
		}
	}
	return nil
}

// maxPositions bounds the positions of a plan: far more than any model has, few enough that sizes do not overflow.
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

// checkHostValues checks the values that the host fills and reads: it relies on their types and shapes.
func (p *Plan) checkHostValues(values map[string]Value) error {
	for _, want := range []Value{
		{ValueIDs, dtype.I32, []int{op.Rows}},
		{ValueRoPE, dtype.F32, []int{op.Rows, p.Model.HeadDim}},
		{ValuePicks, dtype.I32, []int{op.Picks}},
		{ValueLogits, dtype.F32, []int{op.Picks, p.Model.Vocab}},
	} {
		got, ok := values[want.Name]
		if !ok || got.Type != want.Type || !slices.Equal(got.Shape, want.Shape) {
			return fmt.Errorf("value %q must be %s %s, for the host fills or reads it", want.Name, want.Type, op.ShapeString(want.Shape))
		}
	}
	return nil
}

// checkPicks makes sure that steps with picked rows serve the logits alone: they are left out of a pass that wants none.
func (p *Plan) checkPicks(phase []Step) error {
	optional := map[string]bool{} // values written by such steps
	for _, s := range phase {
		prog := p.Program(s.Program)
		picks := hasPicks(prog)
		for i, a := range prog.Args {
			switch {
			case picks && a.Kind == npu.State:
				return fmt.Errorf("step %s has picked rows and state: the state would miss the rows of passes that pick none", s.Name)
			case picks && a.Kind == npu.Out:
				optional[s.Args[i].Value] = true
			case !picks && a.Kind == npu.In && optional[s.Args[i].Value]:
				return fmt.Errorf("step %s reads value %q, which is not written by passes that pick no rows", s.Name, s.Args[i].Value)
			}
		}
	}
	return nil
}

// hasPicks reports whether a program has an argument with one row per pick.
func hasPicks(p *npu.Program) bool {
	return slices.ContainsFunc(p.Args, func(a npu.Arg) bool { return slices.Contains(a.Shape, op.Picks) })
}

func (p *Plan) checkStep(s Step, prog *npu.Program, values map[string]Value) error {
	if prog == nil {
		return fmt.Errorf("step %s: there is no program %q", s.Name, s.Program)
	}
	if s.On != "npu" && s.On != "host" {
		return fmt.Errorf("step %s: on is %q, want npu or host", s.Name, s.On)
	}
	if len(s.Args) != len(prog.Args) {
		return fmt.Errorf("step %s: program %s has %d arguments, the step binds %d", s.Name, prog.Name, len(prog.Args), len(s.Args))
	}
	for i, a := range prog.Args {
		b := s.Args[i]
		ok := false
		switch a.Kind {
		case npu.In, npu.Out:
			v, found := values[b.Value]
			ok = found && v.Type == a.Type && openDim(v.Shape) == openDim(a.Shape) && sizeOf(v.Type, v.Shape) == sizeOf(a.Type, a.Shape)
		case npu.Const:
			ok = b.Const != nil
		case npu.State:
			ok = b.State != "" && a.Type == p.Cache && slices.Equal(a.Shape, []int{p.Model.KVHeads, op.Capacity, p.Model.HeadDim})
		case npu.Scratch:
			ok = b == Binding{}
		}
		if !ok {
			text, _ := b.MarshalText()
			return fmt.Errorf("step %s: argument %q of program %s is %s %s %v, which %q does not give", s.Name, a.Name, prog.Name, a.Kind, a.Type,
				a.Shape, text)
		}
	}
	return nil
}

// openDim is the open dimension of a shape, or 0.
func openDim(shape []int) int {
	if i := slices.IndexFunc(shape, func(d int) bool { return d < 0 }); i >= 0 {
		return shape[i]
	}
	return 0
}

// Check validates the plan and reports one that is for another model or another kind of device.
func (p *Plan) Check(c *checkpoint.Config, device string) error {
	if err := p.Validate(); err != nil {
		return fmt.Errorf("model: plan: %w", err)
	}
	if p.SeqLen > c.Context {
		return fmt.Errorf("model: the plan has a sequence length of %d, the checkpoint a context of %d", p.SeqLen, c.Context)
	}
	if got := identity(c); p.Model != got {
		return fmt.Errorf("model: the plan is for %+v, the checkpoint is %+v", p.Model, got)
	}
	if p.Device != device {
		return fmt.Errorf("model: the plan is for device %s, this is %s", p.Device, device)
	}
	return nil
}
