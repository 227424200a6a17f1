package lesson

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/workspace"
)

// Learn returns the verified lessons of a workspace: the remedies of failures and the tuned plan,
// as far as they are part of the plan that has passed all gates up to finalise. A deployment that
// has not passed finalise has no lessons.
func Learn(dir string) ([]Lesson, error) {
	records, _, err := journal.Read(filepath.Join(dir, journal.FileJournal))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, workspace.NoWorkspace(dir, err)
	}
	if err != nil {
		return nil, err
	}
	return LearnFrom(records)
}

// LearnFrom returns the lessons of a journal's records.
func LearnFrom(records []journal.Record) ([]Lesson, error) {
	final, err := journal.Fold(records)
	if err != nil {
		return nil, err
	}
	if final.Subject == nil || final.Phases[journal.Finalise].Status != journal.Passed {
		return nil, nil
	}
	var list []Lesson
	learn := func(l Lesson, before, after journal.Recipe) error {
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
		l.Evidence = fmt.Sprintf("%s on %s, %d positions: the plan %.12s with it has passed all gates up to %s",
			final.Subject.Name, final.Subject.Device,
			final.Subject.SeqLen, final.Plan, journal.Finalise)
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
	// Remedies: the symptom has the recipe that failed, and the record of the recipe that replaced
	// it comes before the record of the skill. Changes that were kept count over all attempts at a
	// phase: after a redirect, a change that is in the plan already is skipped.
	seen := &journal.State{}
	var first *journal.Recipe
	tuned := map[journal.Phase]map[string]any{journal.Prefill: {}, journal.Decode: {}}
	for _, r := range records {
		before := seen.Recipe
		kept, err := recipeOf(seen, r)
		if err != nil {
			return nil, err
		}
		if first == nil && r.Kind == journal.KindPlan {
			recipe := seen.Recipe
			first = &recipe
		}
		if into := tuned[r.Phase]; kept && into != nil {
			change, err := changedFields(before, seen.Recipe)
			if err != nil {
				return nil, err
			}
			overlay(into, change)
		}
		if r.Kind != journal.KindSkill {
			continue
		}
		var n journal.SkillNote
		if err := json.Unmarshal(r.Data, &n); err != nil {
			return nil, err
		}
		if !n.Outcome.Fixed || n.Outcome.Cause == "" {
			continue
		}
		l := Lesson{Trigger: Trigger{Error: ErrorKind(n.Symptom)}, Cause: n.Outcome.Cause}
		if l.Trigger.Error == "" {
			if l.Trigger.Gate = n.Symptom.Gate; l.Trigger.Gate == "" || journal.IsKernelGate(l.Trigger.Gate) {
				continue // another deployment could not recognise the failure
			}
		}
		if err := learn(l, n.Symptom.Recipe, seen.Recipe); err != nil {
			return nil, err
		}
	}
	if first == nil {
		return nil, fmt.Errorf("%w: phases have passed without a plan", journal.ErrJournal)
	}
	for _, p := range []journal.Phase{journal.Prefill, journal.Decode} {
		// On the first recipe, so that a change that the phase has undone is left out.
		data, err := json.Marshal(tuned[p])
		if err != nil {
			return nil, err
		}
		after, err := first.With(data)
		if err != nil {
			return nil, fmt.Errorf("skill: lessons of %s: %w", p, err)
		}
		l := Lesson{Trigger: Trigger{Phase: &p}, Cause: fmt.Sprintf("what %s has kept, at once", p)}
		if err := learn(l, *first, after); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// recipeOf sets the recipe of s if r changes it. It reports whether r is an attempt that was kept.
func recipeOf(s *journal.State, r journal.Record) (kept bool, err error) {
	switch r.Kind {
	case journal.KindPlan:
		var n journal.PlanNote
		if err := json.Unmarshal(r.Data, &n); err != nil {
			return false, err
		}
		s.Recipe = n.Recipe
	case journal.KindAttempt:
		var a journal.Attempt
		if err := json.Unmarshal(r.Data, &a); err != nil {
			return false, err
		}
		if a.Outcome == journal.Kept {
			s.Recipe = a.Recipe
			return true, nil
		}
	}
	return false, nil
}

// changedFields returns the fields of a recipe that differ from those of the recipe before.
func changedFields(before, after journal.Recipe) (map[string]any, error) {
	was, err := fieldsOf(before)
	if err != nil {
		return nil, err
	}
	is, err := fieldsOf(after)
	if err != nil {
		return nil, err
	}
	return difference(was, is), nil
}

// overlay copies fields into other fields, recursively.
func overlay(into, fields map[string]any) {
	for name, v := range fields {
		inner, nested := v.(map[string]any)
		if old, ok := into[name].(map[string]any); nested && ok {
			overlay(old, inner)
			continue
		}
		into[name] = v
	}
}

// lastingChange returns the difference of after from before, for [journal.Recipe.With], as far as
// the final recipe has it. A remedy may set more than is needed, and changes that the optimisation
// has changed again was not verified. The result is empty if nothing is left.
func lastingChange(before, after, final journal.Recipe) (json.RawMessage, error) {
	var fields [3]map[string]any
	for i, r := range []journal.Recipe{before, after, final} {
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

// lasting returns the part of a change that the final change has too.
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

func fieldsOf(r journal.Recipe) (fields map[string]any, err error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return fields, json.Unmarshal(data, &fields)
}

// difference returns the fields that differ. A field that JSON omits because it is zero is written
// out.
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

// name sets the lesson's name. Equal lessons of different deployments have the same name.
func (l *Lesson) name() error {
	data, err := json.Marshal([]any{l.Device, l.Array, l.Trigger, l.Change})
	if err != nil {
		return err
	}
	about := l.Trigger.Gate + l.Trigger.Error + PhaseText(l.Trigger.Phase)
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
