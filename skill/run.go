package skill

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/xdna2"
	"github.com/npukit/npukit/skill/internal/journal"
)

// attempt is an attempt at a phase, in progress.
type attempt struct {
	d   *Deployment
	env *Env
}

// runPhase runs a phase from its start to its verdict: its skill does the work, its gates decide,
// and if one fails the skills that know such a failure are asked. It resumes a phase in which a
// process was killed. Its error has another cause than the phase: the disk, ctx, or an evaluator
// that could not judge.
func (d *Deployment) runPhase(ctx context.Context, p Phase) (PhaseReport, error) {
	s := d.log.State
	if p > Reference && s.Phases[p-1].Status != journal.Passed {
		return PhaseReport{}, fmt.Errorf("%w: %s, before %s", errOrder, p-1, p)
	}
	if p == Evaluation && d.opts.Evaluate == nil {
		return PhaseReport{}, errNoEvaluator
	}
	if d.closed {
		return PhaseReport{}, journal.ErrClosed
	}
	first := s.Redirected()
	if s.Phases[p].Status != journal.Running {
		if err := d.log.Append(journal.KindStart, p, journal.Start{Why: reasonToStart(s, p)}); err != nil {
			return PhaseReport{}, err
		}
	}
	d.events.send(Event{Phase: p, What: eventPhase, Text: p.Info().Purpose})
	if p == Reference {
		d.events.send(Event{Phase: p, What: eventNote, Text: s.Subject.Reference()})
	}
	env, err := d.env(p)
	if err != nil {
		return PhaseReport{}, err
	}
	a := &attempt{d, env}
	if first != nil && first.Skill != "" && first.Phase == p {
		symptom := Symptom{Phase: p, Recipe: env.bench.Recipe, Error: first.Note}
		if _, err := env.ask(ctx, named(d.skills, first.Skill), symptom); err != nil {
			return PhaseReport{}, err
		}
	}
	for round := 1; ; round++ {
		symptom, keys, err := a.work(ctx)
		switch {
		case err != nil:
			return PhaseReport{}, err
		case symptom == nil:
			return a.finish(journal.Finish{Passed: true, Gates: keys})
		}
		solved, reason, err := a.debug(ctx, *symptom)
		if err != nil {
			return PhaseReport{}, err
		}
		if !solved || round == journal.MaxRounds {
			if solved {
				reason += fmt.Sprintf(" (tried %d times)", journal.MaxRounds)
			}
			return a.finish(journal.Finish{Gates: keys, Reason: reason})
		}
	}
}

// reasonToStart returns why a phase starts again, or "" if it starts for the first time.
func reasonToStart(s *State, p Phase) string {
	switch redirect := s.Redirected(); {
	case redirect != nil && redirect.Phase == p:
		return strings.TrimSpace("redirected: " + redirect.Note)
	case s.Phases[p].Attempts > 0:
		return "again"
	}
	return ""
}

// work runs the phase's skill and then every gate. It returns nil for the symptom if all gates
// pass, and the keys of the gates.
func (a *attempt) work(ctx context.Context) (*Symptom, []string, error) {
	env := a.env
	env.bench.Forget()
	if s := named(a.d.skills, env.Phase.Info().Skill); s != nil {
		if _, err := s.Run(ctx, env); err != nil {
			return a.symptom(ctx, "", err)
		}
	}
	list, err := env.gates(env.Phase)
	if err != nil {
		return a.symptom(ctx, "", err)
	}
	var keys []string
	for i, g := range list {
		a.d.events.done, a.d.events.total = i, len(list)
		r, err := env.runGate(ctx, g)
		if err != nil {
			return a.symptom(ctx, g.Name, err)
		}
		keys = append(keys, r.Key())
		if !r.OK {
			s, err := env.symptomOf(ctx, r)
			return s, keys, err
		}
	}
	return nil, keys, nil
}

// symptom makes a symptom of an error of the device or of a plan. No skill can help with other
// errors, and symptom returns them.
func (a *attempt) symptom(ctx context.Context, gate string, err error) (*Symptom, []string, error) {
	var silent noVerdict
	if ctx.Err() != nil || journal.IsStorage(err) || errors.As(err, &silent) {
		return nil, nil, err
	}
	return &Symptom{Phase: a.env.Phase, Gate: gate, Err: err, Error: err.Error(), Recipe: a.env.bench.Recipe}, nil, nil
}

// isDeviceFailure reports whether err comes from the device, and not from the plan.
func isDeviceFailure(err error) bool {
	for _, e := range []error{npu.ErrTimeout, npu.ErrDeviceLost, npu.ErrNoContext, npu.ErrMemory} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// isRefusal reports whether err comes from a rule of the array.
func isRefusal(err error) bool {
	var e *xdna2.ResourceError
	return errors.As(err, &e)
}

// finish ends the phase and writes the workspace's files.
func (a *attempt) finish(f journal.Finish) (PhaseReport, error) {
	p := a.env.Phase
	if err := a.env.note(journal.KindFinish, f); err != nil {
		return PhaseReport{}, err
	}
	r := a.d.report(p)
	text := "passed"
	if !r.Passed {
		text = "did not pass: " + r.Reason
	}
	a.d.events.send(Event{Phase: p, What: eventFinish, Text: text})
	return r, a.d.writeFiles()
}

// debug asks the skills that know such a failure, and then the user. It reports whether something
// was changed, so that the gates must run again.
func (a *attempt) debug(ctx context.Context, s Symptom) (solved bool, reason string, err error) {
	reason = s.String()
	var directions []Direction
	for _, sk := range a.d.skills {
		if !sk.Trigger(s) {
			continue
		}
		o, err := a.env.ask(ctx, sk, s)
		if err != nil {
			return false, reason, err
		}
		if o.Cause != "" {
			reason = fmt.Sprintf("%s; %s: %s", s, sk.Name(), o.Cause)
			status := "open"
			if o.Fixed {
				status = "worked around"
			}
			issue := Issue{Symptom: s.String(), Cause: o.Cause, Workaround: o.Remedy, Evidence: o.Evidence,
				Status: status}
			if err := a.env.Issue(issue); err != nil {
				return false, reason, err
			}
		}
		if o.Fixed {
			return true, reason, nil
		}
		directions = append(directions, o.Directions...)
		if o.Cause != "" {
			break
		}
	}
	return a.question(ctx, s, reason, directions)
}

// ask runs a skill on a symptom and records its outcome.
func (e *Env) ask(ctx context.Context, s Skill, symptom Symptom) (Outcome, error) {
	e.Symptom = symptom
	o, err := s.Run(ctx, e)
	if err != nil {
		return o, err
	}
	note := journal.SkillNote{Skill: s.Name(), Symptom: symptom, Checked: o.Checked, Outcome: o}
	if err := e.note(journal.KindSkill, note); err != nil {
		return o, err
	}
	text := s.Name() + ": " + o.Cause
	if o.Cause == "" {
		text = s.Name() + " knows no cause"
	}
	e.d.events.send(Event{Phase: e.Phase, What: eventSkill, Text: text})
	return o, nil
}

// question asks the user about a failure, with two to four directions. Without Options.Ask the
// phase fails.
func (a *attempt) question(ctx context.Context, s Symptom, reason string, directions []Direction) (bool, string,
	error) {
	q := Question{Phase: a.env.Phase, Symptom: s, Diagnosis: strings.Join(s.Pattern, "; ")}
	q.Directions = append(q.Directions, directions[:min(len(directions), 2)]...)
	q.Directions = append(q.Directions,
		Direction{Name: "again", What: "run the gates again, after something outside has been changed"},
		Direction{Name: "stop", What: "leave the phase failed; it can be run again later"})
	if err := a.env.note(journal.KindQuestion, q); err != nil {
		return false, reason, err
	}
	if a.d.opts.Ask == nil {
		return false, reason, nil
	}
	c, err := a.d.opts.Ask(ctx, q)
	if err != nil {
		return false, reason, err
	}
	if err := a.env.note(journal.KindChoice, c); err != nil {
		return false, reason, err
	}
	switch c.Direction {
	case "stop":
		return false, reason, nil
	case "again":
		return true, reason, nil
	}
	sk := named(a.d.skills, c.Direction)
	if sk == nil {
		return false, reason, fmt.Errorf("skill: the choice %q is none of the directions", c.Direction)
	}
	_, err = a.env.ask(ctx, sk, s)
	return err == nil, reason, err
}

// symptomOf returns the symptom of a gate that failed. Gates of the model get a diagnosis, op by
// op.
func (e *Env) symptomOf(ctx context.Context, g GateResult) (*Symptom, error) {
	s := &Symptom{Phase: e.Phase, Gate: g.Name, Reasons: g.Reasons, Recipe: e.bench.Recipe}
	switch g.Name {
	case journal.GateBlock, journal.GateBlockOps, journal.GateBlockFar, journal.GateLogits, journal.GatePaper,
		journal.GateGreedy, journal.GateDeterminism, journal.GateGolden:
	default:
		return s, nil
	}
	e.Step("looking for the first op that is wrong")
	rec, _, err := e.bench.Record(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		s.Pattern = append(s.Pattern, fmt.Sprintf("a diagnosis fails too: %v", err))
		return s, nil
	}
	d := gate.Diagnose(rec.Trace)
	s.Diagnosis = &d
	if d.Clean {
		s.Pattern = append(s.Pattern, fmt.Sprintf("every op is right when its output is looked at, for the "+
			"first %d tokens", len(rec.IDs)))
	}
	for _, f := range d.Findings[:min(len(d.Findings), 3)] {
		s.Pattern = append(s.Pattern, f.Tap+": "+f.Cause)
		s.Pattern = append(s.Pattern, f.Where...)
	}
	return s, nil
}
