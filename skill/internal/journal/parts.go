package journal

import (
	"encoding/json"
	"errors"
	"fmt"
)

// PartNote is a part of a gate that passed before the gate had a result. A process that resumes
// need not compute it again. The gate's result does not follow from its parts' notes: the gate
// itself uses them, in the same attempt at the phase.
type PartNote struct {
	Gate    string             `json:"gate"` // key of the gate, see [GateResult.Key]
	Part    string             `json:"part"`
	Line    string             `json:"line"` // the figures in a line
	Figures map[string]float64 `json:"figures,omitempty"`
	Bounds  string             `json:"bounds,omitempty"`
	Seconds float64            `json:"seconds"`
}

// addPart adds a part to the state. It returns an error if no gate can have recorded it.
func (s *State) addPart(r Record) error {
	var n Noted[PartNote]
	n.Seq, n.Phase, n.Time = r.Seq, r.Phase, r.Time
	if err := json.Unmarshal(r.Data, &n.Value); err != nil {
		return err
	}
	if n.Value.Gate == "" || n.Value.Part == "" {
		return errors.New("a part of a gate without its gate, or without a name")
	}
	if s.Phases[r.Phase].Status != Running {
		return fmt.Errorf("a part of gate %s in phase %s, which is not running", n.Value.Gate, r.Phase)
	}
	s.parts[n.Value.Gate] = append(s.parts[n.Value.Gate], n)
	return nil
}

// Part returns a part of a gate that passed in this attempt at a phase.
func (s *State) Part(p Phase, gate, name string) (PartNote, bool) {
	for _, n := range s.parts[gate] {
		if n.Phase == p && n.Value.Part == name && n.Seq > s.Phases[p].Since {
			return n.Value, true
		}
	}
	return PartNote{}, false
}
