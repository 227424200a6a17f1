package journal

import (
	"strings"

	"github.com/npukit/npukit/gate"
)

// Symptom is a failure: which gate failed, why, and in which pattern.
type Symptom struct {
	Phase     Phase           `json:"phase"`
	Gate      string          `json:"gate,omitempty"` // the gate that failed, or ""
	Reasons   []gate.Reason   `json:"reasons,omitempty"`
	Diagnosis *gate.Diagnosis `json:"-"`                 // op by op, or nil
	Pattern   []string        `json:"pattern,omitempty"` // of the diagnosis
	Err       error           `json:"-"`
	Error     string          `json:"error,omitempty"` // the text of Err
	Recipe    Recipe          `json:"recipe"`          // of the plan that failed
}

// String returns the symptom in one line.
func (s Symptom) String() string {
	var parts []string
	if s.Gate != "" {
		parts = append(parts, "gate "+s.Gate+" fails")
	}
	for _, r := range s.Reasons {
		parts = append(parts, r.Text)
	}
	if s.Error != "" {
		parts = append(parts, s.Error)
	}
	return strings.Join(append(parts, s.Pattern...), "; ")
}

// Outcome is the result of a skill.
type Outcome struct {
	// Cause is the cause that a debug skill found, or "".
	Cause    string `json:"cause,omitempty"`
	Evidence string `json:"evidence,omitempty"`
	Remedy   string `json:"remedy,omitempty"` // done, or to be done
	// Fixed means that the skill has changed something, and that the gates must run again.
	Fixed bool `json:"fixed,omitempty"`
	// Directions are ways to go on, if the skill found no cause.
	Directions []Direction `json:"directions,omitempty"`
	// Checked are the hypotheses that the skill has tested. Records have them as SkillNote.Checked.
	Checked []Hypothesis `json:"-"`
}

// Hypothesis is a possible cause of a symptom, and the result of its test.
type Hypothesis struct {
	Cause     string `json:"cause"`
	Confirmed bool   `json:"confirmed"`
	Evidence  string `json:"evidence"`
}
