package skill

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
	What  EventKind
	Text  string // for people
	Gate  *GateResult
	Done  int // of Total steps; 0 if there are none
	Total int
}

// EventKind is the kind of an event.
type EventKind string

// The kinds of events.
const (
	EventPhase   EventKind = "phase"   // a phase begins
	EventStep    EventKind = "step"    // a step begins
	EventNote    EventKind = "note"    // something to know about the deployment
	EventGate    EventKind = "gate"    // a gate has a result
	EventAttempt EventKind = "attempt" // a change to the plan was kept or not
	EventSkill   EventKind = "skill"   // a debug skill has an outcome
	EventFinish  EventKind = "finish"  // a phase has ended
)
