package skill

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// LessonsOf are the lessons of a workspace that were verified: the remedies of failures, and the tuned plan, as far as they are part of the plan that passed all gates up to
// finalise. Of a deployment that has not come so far there are none.
func LessonsOf(dir string) ([]Lesson, error) {
	records, _, err := ReadJournal(filepath.Join(dir, FileJournal))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noWorkspace(dir, err)
	}
	if err != nil {
		return nil, err
	}
	final, err := StateOf(records)
	if err != nil {
		return nil, err
	}
	if final.Subject == nil || final.Phases[Finalise].Status != Passed {
		return nil, nil
	}
	var list []Lesson
	learn := func(l Lesson, before, after Recipe) error {
		change, err := lastingChange(before, after, final.Recipe)
		if err != nil || len(change) == 0 {
			return err
		}
		with, err := before.With(change)
		if err != nil {
			return err
		}
		l.Change, l.Remedy = change, with.Describe(before)
		l.Device, l.Array = final.Subject.Device, final.Subject.Array
		l.Evidence = fmt.Sprintf("%s on %s, %d positions: the plan %.12s with it has passed all gates up to %s", final.Subject.Name, final.Subject.Device,
			final.Subject.SeqLen, final.Plan, Finalise)
		if err := l.name(); err != nil {
			return err
		}
		for _, known := range list {
			if known.Name == l.Name {
				return nil
			}
		}
		list = append(list, l)
		return nil
	}
	// Remedies: the recipe that failed is in the symptom, and the one that was put in its place has been noted before the skill's own record.
	seen := &State{}
	for _, r := range records {
		if err := seen.recipeOf(r); err != nil {
			return nil, err
		}
		if r.Kind != KindSkill {
			continue
		}
		var n SkillNote
		if err := json.Unmarshal(r.Data, &n); err != nil {
			return nil, err
		}
		if !n.Outcome.Fixed || n.Outcome.Cause == "" {
			continue
		}
		l := Lesson{Trigger: LessonTrigger{Error: n.Symptom.errorKind()}, Cause: n.Outcome.Cause}
		if l.Trigger.Error == "" {
			if l.Trigger.Gate = n.Symptom.Gate; l.Trigger.Gate == "" || isKernelGate(l.Trigger.Gate) {
				continue // nothing by which another deployment would know it again
			}
		}
		if err := learn(l, n.Symptom.Recipe, seen.Recipe); err != nil {
			return nil, err
		}
	}
	for _, p := range []Phase{Prefill, Decode} {
		before, after := final.tuning(p)
		l := Lesson{Trigger: LessonTrigger{Phase: &p}, Cause: fmt.Sprintf("what %s has kept, at once", p)}
		if err := learn(l, before, after); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// recipeOf takes the recipe out of a record that changes it.
func (s *State) recipeOf(r Record) error {
	switch r.Kind {
	case KindPlan:
		var n PlanNote
		if err := json.Unmarshal(r.Data, &n); err != nil {
			return err
		}
		s.Recipe = n.Recipe
	case KindAttempt:
		var a Attempt
		if err := json.Unmarshal(r.Data, &a); err != nil {
			return err
		}
		if a.Outcome == Kept {
			s.Recipe = a.Recipe
		}
	}
	return nil
}

// tuning is the recipe before and behind all that an optimisation phase has kept. A state has no recipe of the time between, so that what the phase before has kept is taken
// for it, or else the first plan.
func (s *State) tuning(p Phase) (before, after Recipe) {
	before = s.naive()
	for _, a := range s.attempted(p - 1) {
		if a.Outcome == Kept {
			before = a.Recipe
		}
	}
	after = before
	for _, a := range s.attempted(p) {
		if a.Outcome == Kept {
			after = a.Recipe
		}
	}
	return before, after
}

// lastingChange is what after differs in from before, as [Recipe.With] takes it, as far as the final recipe still has it: a remedy may set more than it takes, and what the
// optimisation has changed again since was not verified. Empty when nothing is left.
func lastingChange(before, after, final Recipe) (json.RawMessage, error) {
	var fields [3]map[string]any
	for i, r := range []Recipe{before, after, final} {
		var err error
		if fields[i], err = fieldsOf(r); err != nil {
			return nil, err
		}
	}
	change := lasting(difference(fields[0], fields[1]), difference(fields[0], fields[2]))
	if len(change) == 0 {
		return nil, nil
	}
	return json.Marshal(change)
}

// lasting is the part of a change that is in the other one too.
func lasting(change, final map[string]any) map[string]any {
	kept := map[string]any{}
	for name, v := range change {
		other, there := final[name]
		inner, nested := v.(map[string]any)
		if o, ok := other.(map[string]any); nested && ok {
			if l := lasting(inner, o); len(l) > 0 {
				kept[name] = l
			}
		} else if there && fmt.Sprint(v) == fmt.Sprint(other) {
			kept[name] = v
		}
	}
	return kept
}

func fieldsOf(r Recipe) (fields map[string]any, err error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return fields, json.Unmarshal(data, &fields)
}

// difference are the fields that are others. One that is left out in JSON because it is zero is spelt out.
func difference(was, is map[string]any) map[string]any {
	change := map[string]any{}
	for name, v := range is {
		inner, nested := v.(map[string]any)
		if old, ok := was[name].(map[string]any); nested && ok {
			if d := difference(old, inner); len(d) > 0 {
				change[name] = d
			}
		} else if fmt.Sprint(was[name]) != fmt.Sprint(v) {
			change[name] = v
		}
	}
	for name, v := range was {
		if _, there := is[name]; there {
			continue
		}
		switch v.(type) {
		case bool:
			change[name] = false
		case string:
			change[name] = ""
		case float64:
			change[name] = 0
		default:
			change[name] = nil
		}
	}
	return change
}

// name gives the lesson a name by what it is about, the same for the same lesson of another deployment.
func (l *Lesson) name() error {
	data, err := json.Marshal([]any{l.Device, l.Array, l.Trigger, l.Change})
	if err != nil {
		return err
	}
	about := l.Trigger.Gate + l.Trigger.Error + phaseText(l.Trigger.Phase)
	about = strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(about)), "-")
	for strings.Contains(about, "--") {
		about = strings.ReplaceAll(about, "--", "-")
	}
	sum := sha256.Sum256(data)
	l.Name = lessonPrefix + strings.Trim(about[:min(len(about), 40)], "-") + "-" + hex.EncodeToString(sum[:4])
	return nil
}
