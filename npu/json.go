package npu

import (
	"bytes"
	"encoding/json"

	"github.com/npukit/npukit/npu/op"
)

// programJSON and launchJSON are the JSON format of programs in plans.
type programJSON struct {
	Name     string       `json:"name"`
	Instance string       `json:"instance,omitempty"`
	Args     []Arg        `json:"args"`
	Launches []launchJSON `json:"launches"`
}

type launchJSON struct {
	Name    string          `json:"name"`
	Op      json.RawMessage `json:"op"`
	Args    []View          `json:"args"`
	Mapping *Mapping        `json:"mapping,omitempty"`
}

// MarshalJSON encodes the program for a plan. It returns p.Err if that is not nil.
func (p *Program) MarshalJSON() ([]byte, error) {
	if err := p.Err(); err != nil {
		return nil, err
	}
	out := programJSON{Name: p.Name, Instance: p.Instance, Args: p.Args}
	for _, l := range p.Launches {
		body, err := op.Marshal(l.Op)
		if err != nil {
			return nil, err
		}
		entry := launchJSON{Name: l.Name, Op: body, Args: l.Args}
		if m := l.Mapping; m.Variant != "" || m.Tile != nil || m.Herd != nil || m.Layout != "" ||
			m.Fused != "" {
			entry.Mapping = &m
		}
		out.Launches = append(out.Launches, entry)
	}
	return json.Marshal(out)
}

// UnmarshalJSON decodes and validates a program; unknown fields are errors.
func (p *Program) UnmarshalJSON(data []byte) error {
	var in programJSON
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return &ProgramError{Reason: "JSON: " + err.Error(), Err: err}
	}
	q := Program{Name: in.Name, Instance: in.Instance, Args: in.Args}
	for _, l := range in.Launches {
		o, err := op.Unmarshal(l.Op)
		if err != nil {
			return &ProgramError{Program: in.Name, Launch: l.Name, Reason: err.Error(), Err: err}
		}
		launch := Launch{Name: l.Name, Op: o, Args: l.Args}
		if l.Mapping != nil {
			launch.Mapping = *l.Mapping
		}
		q.Launches = append(q.Launches, launch)
	}
	if err := q.validate(); err != nil {
		return err
	}
	*p = q
	return nil
}
