package journal

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/npukit/npukit/model/plan"
)

// Status is the status of a phase.
type Status string

// The statuses.
const (
	Pending Status = "pending"
	Running Status = "running" // started and not ended, also if the process was killed
	Passed  Status = "passed"
	Failed  Status = "failed"
)

// PhaseState is the state of a phase.
type PhaseState struct {
	Phase    Phase        `json:"phase"`
	Status   Status       `json:"status"`
	Attempts int          `json:"attempts"`
	Started  time.Time    `json:"started,omitzero"`
	Ended    time.Time    `json:"ended,omitzero"`
	Seconds  float64      `json:"seconds"` // of work, over all attempts and processes
	Gates    []GateResult `json:"gates"`   // the last result of each gate in this attempt
	Reason   string       `json:"reason,omitempty"`
	Since    int          `json:"-"` // Seq of the start of this attempt
	Approved bool         `json:"-"` // by the user, after it passed
}

// State is the state of a deployment, folded from the records of its journal.
type State struct {
	Subject    *Subject           `json:"subject"` // nil for an empty journal
	Phases     []PhaseState       `json:"phases"`
	Recipe     Recipe             `json:"recipe"`
	Plan       string             `json:"plan_sha256"` // "" if there is none yet
	Kernels    []KernelNote       `json:"kernels"`
	Attempts   []Attempted        `json:"attempts"`
	Measured   []Measured         `json:"measured"`
	Issues     []Noted[Issue]     `json:"issues"`
	Skills     []Noted[SkillNote] `json:"skills"`
	Questions  []Noted[Question]  `json:"questions"`
	Decisions  []Noted[Decision]  `json:"decisions"`
	Evaluation *EvaluationReport  `json:"evaluation,omitempty"`
	Records    int                `json:"records"`

	gates    map[string]keyed  // the last result by key
	recipes  map[string]Recipe // by the hash of the plan
	turns    []Noted[TurnsNote]
	parts    map[string][]Noted[PartNote] // of gates without a result, by key
	redirect *Decision                    // not followed yet
	last     time.Time                    // of the last record
}

// Noted is a value with the number, the phase and the time of its record.
type Noted[T any] struct {
	Seq   int       `json:"seq"`
	Phase Phase     `json:"phase"`
	Time  time.Time `json:"time"`
	Value T         `json:"value"`
}

// Attempted and Measured are attempts and measurements with their records.
type (
	Attempted = Noted[Attempt]
	Measured  = Noted[Measurement]
)

// keyed is the result of a gate with the number of its record.
type keyed struct {
	seq    int
	result GateResult
}

// ReadState reads the journal of a workspace without locking it. For an empty journal, which a
// process leaves that was killed before its first record, the error wraps [ErrJournal] and
// [fs.ErrNotExist].
func ReadState(dir string) (*State, error) {
	records, _, err := Read(filepath.Join(dir, FileJournal))
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return nil, emptyJournal(filepath.Join(dir, FileJournal))
	}
	return Fold(records)
}

// emptyJournal is the error for an empty journal; its value is the path.
type emptyJournal string

func (e emptyJournal) Error() string {
	return fmt.Sprintf("skill: %s is empty: nothing has been deployed there yet", string(e))
}
func (emptyJournal) Is(target error) bool { return target == ErrJournal || target == fs.ErrNotExist }

// Fold adds up records. It returns an error that wraps [ErrJournal] if they are contradictory, for
// example if a phase passed without its gates.
func Fold(records []Record) (*State, error) {
	s := &State{gates: map[string]keyed{}, recipes: map[string]Recipe{}, parts: map[string][]Noted[PartNote]{}}
	for _, p := range Phases() {
		s.Phases = append(s.Phases, PhaseState{Phase: p, Status: Pending})
	}
	for _, r := range records {
		if err := s.Add(r); err != nil {
			return nil, fmt.Errorf("%w: record %d: %w", ErrJournal, r.Seq, err)
		}
	}
	return s, nil
}

// Add adds one record.
func (s *State) Add(r Record) (err error) {
	p := &s.Phases[r.Phase]
	if !s.last.IsZero() && r.Kind != KindResume &&
		r.Kind != KindDecision { // nothing ran before these
		p.Seconds += max(0, r.Time.Sub(s.last).Seconds())
	}
	s.Records, s.last = r.Seq, r.Time
	switch r.Kind {
	case KindDeployment:
		s.Subject = new(Subject)
		err = json.Unmarshal(r.Data, s.Subject)
	case KindStart:
		if r.Phase > Reference && s.Phases[r.Phase-1].Status != Passed {
			return fmt.Errorf("phase %s began before %s had passed", r.Phase, r.Phase-1)
		}
		s.reset(r.Phase)
		if s.redirect != nil && s.redirect.Skill == "" {
			s.redirect = nil
		}
		p.Status, p.Started, p.Ended, p.Since = Running, r.Time, time.Time{}, r.Seq
		p.Attempts++
	case KindGate:
		var g GateResult
		if err = json.Unmarshal(r.Data, &g); err == nil {
			s.gates[g.Key()] = keyed{r.Seq, g}
			delete(s.parts, g.Key())
			p.Gates = slices.DeleteFunc(p.Gates, func(old GateResult) bool { return old.Key() == g.Key() })
			p.Gates = append(p.Gates, g)
		}
	case KindPlan:
		var n PlanNote
		if err = json.Unmarshal(r.Data, &n); err == nil {
			s.Recipe, s.Plan, s.recipes[n.Hash] = n.Recipe, n.Hash, n.Recipe
		}
	case KindFinish:
		var f Finish
		if err = json.Unmarshal(r.Data, &f); err == nil {
			err = s.finish(p, f, r.Time)
		}
	case KindKernel:
		var k KernelNote
		if err = json.Unmarshal(r.Data, &k); err == nil {
			s.Kernels = slices.DeleteFunc(s.Kernels, func(old KernelNote) bool { return old.Key == k.Key })
			s.Kernels = append(s.Kernels, k)
		}
	case KindAttempt:
		s.turns = nil // they belong to the attempt
		if err = note(&s.Attempts, r); err == nil {
			err = s.keep(s.Attempts[len(s.Attempts)-1].Value)
		}
	case KindPart:
		err = s.addPart(r)
	case KindTurns:
		err = note(&s.turns, r)
	case KindMeasure:
		err = note(&s.Measured, r)
	case KindIssue:
		err = note(&s.Issues, r)
	case KindSkill:
		err = note(&s.Skills, r)
		s.redirect = nil
	case KindQuestion:
		err = note(&s.Questions, r)
	case KindDecision:
		if err = note(&s.Decisions, r); err == nil {
			s.decide(s.Decisions[len(s.Decisions)-1].Value)
		}
	case KindEvaluation:
		s.Evaluation = new(EvaluationReport)
		err = json.Unmarshal(r.Data, s.Evaluation)
	case KindResume, KindChoice:
	default:
		return fmt.Errorf("unknown kind %q: was it written by a newer npukit?", r.Kind)
	}
	return err
}

// keep makes the plan of an attempt that was kept the deployment's. It returns an error if the
// attempt's gates have not passed.
func (s *State) keep(a Attempt) error {
	if a.Outcome != Kept {
		return nil
	}
	for _, key := range a.Gates {
		if g, ok := s.gates[key]; !ok || !g.result.OK {
			return fmt.Errorf("change %q was kept although gate %s did not pass", a.Step, key)
		}
	}
	if len(a.Gates) == 0 {
		return fmt.Errorf("change %q was kept without a gate", a.Step)
	}
	s.Recipe, s.Plan = a.Recipe, a.Plan
	return nil
}

// reset makes a phase and all later phases pending.
func (s *State) reset(p Phase) {
	for i := int(p); i < len(s.Phases); i++ {
		later := &s.Phases[i]
		later.Status, later.Reason, later.Gates, later.Approved = Pending, "", nil, false
	}
}

// decide adds a decision of the user.
func (s *State) decide(d Decision) {
	switch d.Action {
	case Approve:
		s.Phases[d.Phase].Approved = true
	case Redirect:
		s.reset(d.Phase)
		s.redirect = &d
	}
}

// note appends the data of a record to a list.
func note[T any](list *[]Noted[T], r Record) error {
	n := Noted[T]{Seq: r.Seq, Phase: r.Phase, Time: r.Time}
	err := json.Unmarshal(r.Data, &n.Value)
	*list = append(*list, n)
	return err
}

// finish ends a phase. It returns an error if the phase passed and one of its gates has not.
func (s *State) finish(p *PhaseState, f Finish, at time.Time) error {
	if p.Status != Running {
		return fmt.Errorf("phase %s ended before it began", p.Phase)
	}
	p.Ended, p.Reason, p.Status = at, f.Reason, Failed
	if !f.Passed {
		return nil
	}
	if len(f.Gates) == 0 {
		return fmt.Errorf("phase %s passed without a gate", p.Phase)
	}
	for _, key := range f.Gates {
		if g, ok := s.gates[key]; !ok || !g.result.OK || g.seq < s.validFrom(p.Phase, g.result) {
			return fmt.Errorf("phase %s passed although gate %s did not pass in it", p.Phase, key)
		}
	}
	p.Status = Passed
	return nil
}

// validFrom returns the record after which a gate's result counts in a phase: the start of the
// attempt. Kernels alone do not depend on the plan around them, so their results count from the
// start of kernel validation.
func (s *State) validFrom(p Phase, g GateResult) int {
	if p > KernelValidation && IsKernelGate(g.Name) {
		return s.Phases[KernelValidation].Since
	}
	return s.Phases[p].Since
}

// Passed returns the result of a gate that has passed and still counts in a phase.
func (s *State) Passed(p Phase, name, subject string) (GateResult, bool) {
	g, ok := s.gates[GateResult{Name: name, Subject: subject}.Key()]
	return g.result, ok && g.result.OK && g.seq > s.validFrom(p, g.result)
}

// Next returns the first phase that has not passed, or false if all have.
func (s *State) Next() (Phase, bool) {
	for _, p := range s.Phases {
		if p.Status != Passed {
			return p.Phase, true
		}
	}
	return 0, false
}

// Attempted returns the changes that were tried in this attempt at a phase.
func (s *State) Attempted(p Phase) []Attempt {
	var list []Attempt
	for _, a := range s.Attempts {
		if a.Phase == p && a.Seq > s.Phases[p].Since {
			list = append(list, a.Value)
		}
	}
	return list
}

// TurnsOf returns turns of comparisons that are not complete, in this attempt at a phase.
func (s *State) TurnsOf(p Phase) []TurnsNote {
	var list []TurnsNote
	for _, n := range s.turns {
		if n.Phase == p && n.Seq > s.Phases[p].Since {
			list = append(list, n.Value)
		}
	}
	return list
}

// LastMeasured returns the last measurement of a plan.
func (s *State) LastMeasured(plan string) (Measurement, bool) {
	for _, m := range slices.Backward(s.Measured) {
		if m.Value.Plan == plan {
			return m.Value, true
		}
	}
	return Measurement{}, false
}

// Due returns the phase to run next, and whether it waits for the approval of the phase before. It
// returns false for ok if all phases have passed.
func (s *State) Due() (p Phase, waiting, ok bool) {
	p, ok = s.Next()
	waiting = ok && p > Reference && !s.Phases[p-1].Approved && s.Phases[p].Status != Running
	return p, waiting, ok
}

// FirstMeasured returns the measurement with which the trajectory begins: that of the first plan,
// or the later one that was taken in turns with the final plan. Evaluators check gains against it.
// It returns false if nothing has been measured.
func (s *State) FirstMeasured() (m Measurement, ok bool) {
	if len(s.Measured) == 0 {
		return m, false
	}
	first := s.Measured[0].Value
	for _, m := range slices.Backward(s.Measured) {
		if m.Phase == Finalise && m.Value.Plan == first.Plan {
			return m.Value, true
		}
	}
	return first, true
}

// PlanStatus returns the status of the plan. It is accepted only after an evaluation has passed.
func (s *State) PlanStatus() plan.Status {
	switch p := s.Phases[Evaluation]; {
	case p.Status == Passed:
		return plan.Accepted
	case p.Status == Failed:
		return plan.Failed
	}
	return plan.Draft
}

// Redirected returns the redirect that has not been followed yet, or nil.
func (s *State) Redirected() *Decision { return s.redirect }

// FirstRecipe returns the recipe of the first plan that was measured. It returns false if that is
// the plan itself, or if the journal has no recipe for it.
func (s *State) FirstRecipe() (Recipe, bool) {
	if len(s.Measured) == 0 || s.Measured[0].Value.Plan == s.Plan {
		return Recipe{}, false
	}
	r, ok := s.recipes[s.Measured[0].Value.Plan]
	return r.Clone(), ok
}
