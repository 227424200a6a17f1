package skill

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/xdna2"
)

// maxRounds is how often a phase is tried again after a skill has changed something.
const maxRounds = 3

// runPhase is a phase from its start to its verdict: its skill does the work, its gates decide, and where one fails the skills that know such a failure are asked.
// A process that was killed in it goes on where it was. The error is that of something else than the phase: the disk, ctx, or an evaluator that could not judge.
func (d *Deployment) runPhase(ctx context.Context, p Phase) (PhaseReport, error) {
	if p > Reference && d.state.Phases[p-1].Status != Passed {
		return PhaseReport{}, fmt.Errorf("%w: %s, before %s", ErrOrder, p-1, p)
	}
	if p == Evaluation && d.opts.Evaluate == nil {
		return PhaseReport{}, ErrNoEvaluator
	}
	if d.closed {
		return PhaseReport{}, ErrClosed
	}
	first := d.state.redirect
	if d.state.Phases[p].Status != Running {
		if err := d.note(KindStart, p, Start{Why: d.why(p)}); err != nil {
			return PhaseReport{}, err
		}
	}
	d.observe(Event{Phase: p, What: EventPhase, Text: p.Info().Purpose})
	if p == Reference {
		d.observe(Event{Phase: p, What: EventNote, Text: d.state.Subject.Reference()})
	}
	env, err := d.env(p)
	if err != nil {
		return PhaseReport{}, err
	}
	if first != nil && first.Skill != "" && first.Phase == p {
		if _, err := d.ask(ctx, env, d.skill(first.Skill), Symptom{Phase: p, Recipe: env.recipe, Error: first.Note}); err != nil {
			return PhaseReport{}, err
		}
	}
	for round := 1; ; round++ {
		symptom, keys, err := d.work(ctx, env)
		switch {
		case err != nil:
			return PhaseReport{}, err
		case symptom == nil:
			return d.finish(p, Finish{Passed: true, Gates: keys})
		}
		solved, reason, err := d.debug(ctx, env, *symptom)
		if err != nil {
			return PhaseReport{}, err
		}
		if !solved || round == maxRounds {
			if solved {
				reason += fmt.Sprintf(" (tried %d times)", maxRounds)
			}
			return d.finish(p, Finish{Gates: keys, Reason: reason})
		}
	}
}

// why says why a phase begins again.
func (d *Deployment) why(p Phase) string {
	switch s := d.state.Phases[p]; {
	case d.state.redirect != nil && d.state.redirect.Phase == p:
		return strings.TrimSpace("redirected: " + d.state.redirect.Note)
	case s.Attempts > 0:
		return "again"
	}
	return ""
}

// work lets the phase's skill work and then asks every gate. The symptom is nil when all hold; keys name the gates.
func (d *Deployment) work(ctx context.Context, env *Env) (*Symptom, []string, error) {
	d.recorded = nil
	if s := d.skill(env.phase.Info().Skill); s != nil {
		if _, err := s.Run(ctx, env); err != nil {
			return d.symptom(ctx, env, "", err)
		}
	}
	gates, err := env.gatesOf(env.phase)
	if err != nil {
		return d.symptom(ctx, env, "", err)
	}
	var keys []string
	for i, g := range gates {
		env.done, env.total = i, len(gates)
		r, err := env.run(ctx, g)
		if err != nil {
			return d.symptom(ctx, env, g.Name, err)
		}
		keys = append(keys, r.Key())
		if !r.OK {
			s, err := env.symptomOf(ctx, r)
			return s, keys, err
		}
	}
	return nil, keys, nil
}

// symptom makes a symptom of an error of the device or of a plan. Other errors end the run: no skill can help there.
func (d *Deployment) symptom(ctx context.Context, env *Env, gate string, err error) (*Symptom, []string, error) {
	var storage storageError
	var silent noVerdict
	if ctx.Err() != nil || errors.As(err, &storage) || errors.As(err, &silent) {
		return nil, nil, err
	}
	return &Symptom{Phase: env.phase, Gate: gate, Err: err, Error: err.Error(), Recipe: env.recipe}, nil, nil
}

// isDeviceFailure reports an error that comes from running, and not from what is run.
func isDeviceFailure(err error) bool {
	for _, e := range []error{npu.ErrTimeout, npu.ErrDeviceLost, npu.ErrNoContext, npu.ErrMemory} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// isRefusal reports an error of a rule of the array.
func isRefusal(err error) bool {
	var e *xdna2.ResourceError
	return errors.As(err, &e)
}

// finish ends a phase and writes what the journal says now.
func (d *Deployment) finish(p Phase, f Finish) (PhaseReport, error) {
	if err := d.note(KindFinish, p, f); err != nil {
		return PhaseReport{}, err
	}
	r := d.report(p)
	text := "passed"
	if !r.Passed {
		text = "did not pass: " + r.Reason
	}
	d.observe(Event{Phase: p, What: EventFinish, Text: text})
	return r, d.documents()
}

// debug asks the skills that know such a failure, and then the user. It reports whether something was changed, so that the gates are to be asked again.
func (d *Deployment) debug(ctx context.Context, env *Env, s Symptom) (solved bool, reason string, err error) {
	reason = s.String()
	var directions []Direction
	for _, sk := range d.skills {
		if !sk.Trigger(s) {
			continue
		}
		o, err := d.ask(ctx, env, sk, s)
		if err != nil {
			return false, reason, err
		}
		if o.Cause != "" {
			reason = fmt.Sprintf("%s; %s: %s", s, sk.Name(), o.Cause)
			status := "open"
			if o.Fixed {
				status = "worked around"
			}
			issue := Issue{Symptom: s.String(), Cause: o.Cause, Workaround: o.Remedy, Evidence: o.Evidence, Status: status}
			if err := d.note(KindIssue, env.phase, issue); err != nil {
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
	return d.question(ctx, env, s, reason, directions)
}

// ask runs a skill on a symptom and notes what it said.
func (d *Deployment) ask(ctx context.Context, env *Env, s Skill, symptom Symptom) (Outcome, error) {
	env.checked, env.symptom = nil, symptom
	o, err := s.Run(ctx, env)
	if err != nil {
		return o, err
	}
	if err := d.note(KindSkill, env.phase, SkillNote{Skill: s.Name(), Symptom: symptom, Checked: env.checked, Outcome: o}); err != nil {
		return o, err
	}
	text := s.Name() + ": " + o.Cause
	if o.Cause == "" {
		text = s.Name() + " knows no cause"
	}
	d.observe(Event{Phase: env.phase, What: EventSkill, Text: text})
	return o, nil
}

// question puts a failure to the user, with two to four ways on. Nobody to ask means to stop.
func (d *Deployment) question(ctx context.Context, env *Env, s Symptom, reason string, directions []Direction) (bool, string, error) {
	q := Question{Phase: env.phase, Symptom: s, Diagnosis: strings.Join(s.Pattern, "; ")}
	q.Directions = append(q.Directions, directions[:min(len(directions), 2)]...)
	q.Directions = append(q.Directions, Direction{"again", "run the gates again, after something outside has been changed"},
		Direction{"stop", "leave the phase failed; it can be run again later"})
	if err := d.note(KindQuestion, env.phase, q); err != nil {
		return false, reason, err
	}
	if d.opts.Ask == nil {
		return false, reason, nil
	}
	c, err := d.opts.Ask(ctx, q)
	if err != nil {
		return false, reason, err
	}
	if err := d.note(KindChoice, env.phase, c); err != nil {
		return false, reason, err
	}
	switch c.Direction {
	case "stop":
		return false, reason, nil
	case "again":
		return true, reason, nil
	}
	sk := d.skill(c.Direction)
	if sk == nil {
		return false, reason, fmt.Errorf("skill: the choice %q is none of the directions", c.Direction)
	}
	_, err = d.ask(ctx, env, sk, s)
	return err == nil, reason, err
}
