package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
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

// Validate checks that steps name programs of the plan and that every argument has a binding of its kind, type and shape.
func (p *Plan) Validate() error {
	switch {
	case p.Version != PlanVersion:
		return fmt.Errorf("version is %d, this npukit reads %d: make the plan again", p.Version, PlanVersion)
	case p.SeqLen <= 0 || p.Chunk <= 0:
		return fmt.Errorf("seq_len is %d and chunk %d, both must be positive", p.SeqLen, p.Chunk)
	case p.Activations != dtype.BF16 && p.Activations != dtype.F32:
		return fmt.Errorf("activations are %s, want BF16 or F32", p.Activations)
	case p.Cache != dtype.BF16 && p.Cache != dtype.F16 && p.Cache != dtype.F32:
		return fmt.Errorf("cache is %s, want BF16, F16 or F32", p.Cache)
	case len(p.Prefill) == 0 || len(p.Decode) == 0:
		return errors.New("a plan needs steps for prefill and for decode")
	}
	values := map[string]Value{}
	for _, v := range p.Values {
		if _, twice := values[v.Name]; twice || v.Name == "" || !v.Type.Valid() || len(v.Shape) == 0 {
			return fmt.Errorf("value %q is malformed or there twice", v.Name)
		}
		values[v.Name] = v
	}
	for _, name := range []string{ValueIDs, ValuePicks, ValueLogits} {
		if _, ok := values[name]; !ok {
			return fmt.Errorf("there is no value %q", name)
		}
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
	}
	return nil
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
			ok = found && v.Type == a.Type && sizeOf(v.Type, v.Shape) == sizeOf(a.Type, a.Shape)
		case npu.Const:
			ok = b.Const != nil
		case npu.State:
			ok = b.State != ""
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

// Check reports a plan that is for another model or another kind of device.
func (p *Plan) Check(c *checkpoint.Config, device string) error {
	if got := identity(c); p.Model != got {
		return fmt.Errorf("model: the plan is for %+v, the checkpoint is %+v", p.Model, got)
	}
	if p.Device != device {
		return fmt.Errorf("model: the plan is for device %s, this is %s", p.Device, device)
	}
	return nil
}
