package journal

import (
	"strings"

	"github.com/npukit/npukit/gate"
)

// Symptom is a failure as it shows: which gate, on what grounds, in which pattern.
type Symptom struct {
	Phase     Phase           `json:"phase"`
	Gate      string          `json:"gate,omitempty"` // that failed; "" when something else did
	Reasons   []gate.Reason   `json:"reasons,omitempty"`
	Diagnosis *gate.Diagnosis `json:"-"`                 // op by op, where there is one
	Pattern   []string        `json:"pattern,omitempty"` // of the diagnosis, in words
	Err       error           `json:"-"`
	Error     string          `json:"error,omitempty"` // the text of Err
	Recipe    Recipe          `json:"recipe"`          // of the plan that failed
}

// String is the symptom in a line.
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

// Outcome is what a skill came to.
type Outcome struct {
	// Cause is what a debug skill found, "" when it knows of nothing.
	Cause    string `json:"cause,omitempty"`
	Evidence string `json:"evidence,omitempty"`
	Remedy   string `json:"remedy,omitempty"` // what was done, or what to do
	// Fixed asks for the gates to run again: the skill has changed something.
	Fixed bool `json:"fixed,omitempty"`
	// Directions are ways on where the skill itself knows none.
	Directions []Direction `json:"directions,omitempty"`
}

// Hypothesis is a cause that would explain a symptom, and what its test found.
type Hypothesis struct {
	Cause     string `json:"cause"`
	Confirmed bool   `json:"confirmed"`
	Evidence  string `json:"evidence"`
}
