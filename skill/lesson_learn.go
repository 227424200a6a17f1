package skill

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
)

// LessonsOf are the lessons of a workspace that were verified: the remedies of failures, and the tuned plan, as far as they are part of the plan that passed all gates up to
// finalise. Of a deployment that has not come so far there are none.
func LessonsOf(dir string) ([]Lesson, error) {
	records, _, err := ReadJournal(filepath.Join(dir, FileJournal))
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
	learn := func(l Lesson) error {
		if len(l.Change) == 0 {
			return nil
		}
		kept, err := final.Recipe.With(l.Change)
		if err != nil {
			return err
		}
		same, err := sameJSON(kept, final.Recipe)
		if err != nil || !same {
			return err // it was given up again later
		}
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
		change, err := changeBetween(n.Symptom.Recipe, seen.Recipe)
		if err != nil {
			return nil, err
		}
		l := Lesson{Trigger: LessonTrigger{Error: n.Symptom.errorKind()}, Cause: n.Outcome.Cause, Change: change, Remedy: seen.Recipe.Describe(n.Symptom.Recipe)}
		if l.Trigger.Error == "" {
			if l.Trigger.Gate = n.Symptom.Gate; l.Trigger.Gate == "" || isKernelGate(l.Trigger.Gate) {
				continue // nothing by which another deployment would know it again
			}
		}
		if err := learn(l); err != nil {
			return nil, err
		}
	}
	for _, p := range []Phase{Prefill, Decode} {
		before, after := final.tuning(p)
		change, err := changeBetween(before, after)
		if err != nil {
			return nil, err
		}
		l := Lesson{Trigger: LessonTrigger{Phase: &p}, Cause: fmt.Sprintf("what %s has kept, at once", p), Change: change, Remedy: after.Describe(before)}
		if err := learn(l); err != nil {
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

// changeBetween is the object that [Recipe.With] makes after of before with; empty when they are the same.
func changeBetween(before, after Recipe) (json.RawMessage, error) {
	was, err := fieldsOf(before)
	if err != nil {
		return nil, err
	}
	is, err := fieldsOf(after)
	if err != nil {
		return nil, err
	}
	change := difference(was, is)
	if len(change) == 0 {
		return nil, nil
	}
	return json.Marshal(change)
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

func sameJSON(a, b any) (bool, error) {
	x, err := json.Marshal(a)
	if err != nil {
		return false, err
	}
	y, err := json.Marshal(b)
	return bytes.Equal(x, y), err
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
