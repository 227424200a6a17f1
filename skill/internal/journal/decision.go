package journal

// Action is what a person says to the report of a phase.
type Action string

// The actions.
const (
	Approve  Action = "approve"  // go on
	Redirect Action = "redirect" // back to a phase, or to a skill first; every gate from there on runs again
	Stop     Action = "stop"     // leave it here; a later Run goes on
)

// Decision is the answer at the checkpoint behind a phase.
type Decision struct {
	Action Action `json:"action"`
	Phase  Phase  `json:"phase"`           // of a redirect: where to go on, at most the phase that was reported
	Skill  string `json:"skill,omitempty"` // of a redirect: the skill that runs first
	Note   string `json:"note,omitempty"`
}

// Question is put to the user when no skill knows a failure.
type Question struct {
	Phase      Phase       `json:"phase"`
	Symptom    Symptom     `json:"symptom"`
	Diagnosis  string      `json:"diagnosis,omitempty"` // in words
	Directions []Direction `json:"directions"`          // two to four, the most promising first
}

// Direction is a way on from a failure.
type Direction struct {
	Name string `json:"name"` // "again", "back", "stop", or the name of a skill
	What string `json:"what"`
}

// Choice is the answer to a question.
type Choice struct {
	Direction string `json:"direction"` // the name of one
	Note      string `json:"note,omitempty"`
}

// EvaluationReport is an evaluator's verdict. The zero report has checked nothing and is no acceptance.
type EvaluationReport struct {
	OK      bool              `json:"ok"`
	Plan    string            `json:"plan_sha256"` // the plan that was judged
	Checks  []EvaluationCheck `json:"checks"`
	Seconds float64           `json:"seconds"`
	// Reference says what the evaluator's oracle itself was held to: see [Subject.Reference].
	Reference string `json:"reference,omitempty"`
	// Measured are the evaluator's own figures; nil where it did not come to them.
	Measured *Measurement `json:"measured,omitempty"`
	// First are those of the plan with which the trajectory begins; nil too where that is the one that is reported.
	First *Measurement `json:"first,omitempty"`
}

// EvaluationCheck is one thing that an evaluator looked at.
type EvaluationCheck struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}
