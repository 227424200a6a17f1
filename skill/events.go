package skill

import "fmt"

// PhaseReport is the result of a phase.
type PhaseReport struct {
	Phase   Phase        `json:"phase"`
	Passed  bool         `json:"passed"`
	Reason  string       `json:"reason,omitempty"` // why it did not pass
	Gates   []GateResult `json:"gates"`
	Seconds float64      `json:"seconds"`
	Notes   []string     `json:"notes,omitempty"` // issues of this attempt
}

// Event is progress of a deployment.
type Event struct {
	Phase Phase
	// What is the kind of the event: "phase" (a phase begins), "step" (a step begins), "note"
	// (something to know about the deployment), "gate" (a gate has a result), "attempt" (a change to
	// the plan was kept or not), "skill" (a debug skill has an outcome), or "finish" (a phase has
	// ended).
	What  string
	Text  string      // for people
	Gate  *GateResult // of a "gate"
	Done  int         // of Total steps; 0 if there are none
	Total int
}

// The kinds of events.
const (
	eventPhase   = "phase"
	eventStep    = "step"
	eventNote    = "note"
	eventGate    = "gate"
	eventAttempt = "attempt"
	eventSkill   = "skill"
	eventFinish  = "finish"
)

// reporter sends the events of a deployment.
type reporter struct {
	to          func(Event) // may be nil
	phase       Phase
	done, total int // steps of the phase
}

func (r *reporter) send(e Event) {
	if r.to != nil {
		r.to(e)
	}
}

// step reports the next step.
func (r *reporter) step(format string, args ...any) {
	r.send(Event{Phase: r.phase, What: eventStep, Text: fmt.Sprintf(format, args...), Done: r.done, Total: r.total})
}
