package journal

// Action is the action of a decision.
type Action string

// The actions.
const (
	Approve  Action = "approve"  // go on
	Redirect Action = "redirect" // go back to a phase, or to a skill first; later gates run again
	Stop     Action = "stop"     // stop; a later Run resumes
)

// Decision is the answer to the report of a phase.
type Decision struct {
	Action Action `json:"action"`
	Phase  Phase  `json:"phase"`           // of a redirect: at most the phase that was reported
	Skill  string `json:"skill,omitempty"` // of a redirect: the skill that runs first, or ""
	Note   string `json:"note,omitempty"`
}

// Question asks the user about a failure that no skill knows.
type Question struct {
	Phase      Phase       `json:"phase"`
	Symptom    Symptom     `json:"symptom"`
	Diagnosis  string      `json:"diagnosis,omitempty"`
	Directions []Direction `json:"directions"` // two to four, the most promising first
}

// Direction is a way to go on after a failure.
type Direction struct {
	Name string `json:"name"` // "again", "back", "stop", or the name of a skill
	What string `json:"what"`
}

// Choice is the answer to a question.
type Choice struct {
	Direction string `json:"direction"` // the name of one of the question's directions
	Note      string `json:"note,omitempty"`
}

// EvaluationReport is an evaluator's verdict. The zero report has checked nothing and is not an
// acceptance.
type EvaluationReport struct {
	OK      bool              `json:"ok"`
	Plan    string            `json:"plan_sha256"` // the plan that was judged
	Checks  []EvaluationCheck `json:"checks"`
	Seconds float64           `json:"seconds"`
	// Reference describes the reference of the evaluator's oracle, see [Subject.Reference].
	Reference string `json:"reference,omitempty"`
	// Measured are the evaluator's own figures, or nil if it took none.
	Measured *Measurement `json:"measured,omitempty"`
	// First are the evaluator's figures of the first plan of the trajectory. It is nil if the plan
	// is that one.
	First *Measurement `json:"first,omitempty"`
}

// EvaluationCheck is one check of an evaluation.
type EvaluationCheck struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}
