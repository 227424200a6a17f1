package skill

import (
	"context"
	"fmt"

	"github.com/npukit/npukit/skill/internal/gates"
	"github.com/npukit/npukit/skill/internal/lesson"
)

// PromoteLessons writes the lessons of the deployment in workspace into folders of dir, where
// [LoadLessons] and agents find it. It returns the names of all lessons, and of those that were
// written; lessons that exist already are not touched. A deployment that has not passed all phases
// up to [Finalise] has learned nothing.
func PromoteLessons(workspace, dir string) (learned, written []string, err error) {
	list, err := lesson.Learn(workspace)
	if err != nil {
		return nil, nil, err
	}
	for _, l := range list {
		learned = append(learned, l.Name)
	}
	written, err = lesson.Write(dir, list)
	return learned, written, err
}

// LoadLessons reads the lessons in the folders of dir as skills for [Options]. It ignores folders
// without a lesson.
func LoadLessons(dir string) ([]Skill, error) {
	lessons, err := lesson.Read(dir)
	if err != nil {
		return nil, err
	}
	var list []Skill
	for _, l := range lessons {
		list = append(list, lessonSkill{l})
	}
	return list, nil
}

// lessonSkill tries a lesson.
type lessonSkill struct{ lesson lesson.Lesson }

func (s lessonSkill) Name() string { return s.lesson.Name }

// holds reports whether the lesson was learned on such a device.
func (s lessonSkill) holds(e *Env) bool {
	return e.bench.Models.Info.Kind == s.lesson.Device && e.bench.Models.Info.Array == s.lesson.Array
}

// Trigger is on the failure of the lesson.
func (s lessonSkill) Trigger(x Symptom) bool {
	t := s.lesson.Trigger
	return t.Error != "" && t.Error == lesson.ErrorKind(x) || t.Gate != "" && t.Gate == x.Gate &&
		lesson.ErrorKind(x) == ""
}

// firstOfAll orders lessons before the built-in changes, which are then skipped if they do not
// change the plan.
const firstOfAll = -1

// Changes returns the lesson's change in its phase.
func (s lessonSkill) Changes(e *Env) []Change {
	if p := s.lesson.Trigger.Phase; p == nil || *p != e.Phase || !s.holds(e) {
		return nil
	}
	next, err := e.bench.Recipe.With(s.lesson.Change)
	if err != nil {
		return nil // the plan does not have the knobs
	}
	return []Change{{Name: s.lesson.Name, Order: firstOfAll, Take: func(r *Recipe) { *r = next }}}
}

// Run tries the change on the failure, and keeps it if it helps.
func (s lessonSkill) Run(ctx context.Context, e *Env) (Outcome, error) {
	next, err := e.bench.Recipe.With(s.lesson.Change)
	if !s.holds(e) || err != nil || e.Phase >= Finalise {
		return Outcome{}, nil
	}
	return walk(ctx, e, []hypothesis{{
		s.lesson.Cause,
		func(ctx context.Context, e *Env) (bool, string, error) { return s.mends(ctx, e.with(next)) },
		func(_ context.Context, e *Env) (bool, string, error) {
			return true, s.lesson.Remedy, e.SetRecipe(next, s.lesson.Name+": "+s.lesson.Remedy)
		},
	}})
}

// mends repeats the failed gate or run on the changed plan.
func (s lessonSkill) mends(ctx context.Context, trial *Env) (bool, string, error) {
	name := trial.Symptom.Gate
	if s.lesson.Trigger.Error != "" {
		if err := works(ctx, trial); err != nil {
			return false, fmt.Sprintf("with the change it fails too: %v", err), nil
		}
		return true, "with the change the model runs", nil
	}
	list, err := trial.gates(trial.Phase)
	if err != nil {
		return false, fmt.Sprintf("the plan cannot be made with the change: %v", err), nil
	}
	for _, g := range list {
		if g.Name != name {
			continue
		}
		v, err := g.Check(ctx, trial.bench)
		if err != nil {
			return false, "", err
		}
		line, _, _ := gates.Describe(v)
		return v.OK(), "gate " + name + " with the change: " + line, nil
	}
	return false, "the plan with the change has no gate " + name, nil
}
