package skill

import (
	"context"
	"testing"

	"github.com/npukit/npukit/skill/internal/skilltest"
)

// A user's gate has the same environment in an evaluation as in the deployment: the subject, the
// plan, and events of the phase that runs.
func TestUserGateInAnEvaluation(t *testing.T) {
	t.Parallel()
	opts, ran := small(t), 0
	opts.Gates = []Gate{{Name: "reads-state", Phases: []Phase{SingleBlock},
		Check: func(_ context.Context, e *Env) (Verdict, error) {
			ran++
			e.Step("reading the state")
			c, s := Checks{Name: "reads-state"}, e.State
			c.Hold(s.Subject.SeqLen == opts.SeqLen && s.Subject.Config.Layers == e.Config.Layers, "subject",
				"the subject is that of the deployment")
			c.Hold(s.Plan != "" && s.Recipe.SeqLen == e.Recipe().SeqLen, "plan", "the state has the plan")
			return c, nil
		}}}
	dev := skilltest.OpenCPU(t)
	d := deployment(t, skilltest.Tiny("smollm-mha"), dev, opts)
	if err := d.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	evaluation, before, steps := loose(), ran, 0
	evaluation.Gates = opts.Gates
	evaluation.Observe = func(e Event) {
		if e.Phase != Evaluation {
			t.Errorf("an event of phase %s: %s", e.Phase, e.Text)
		}
		if e.Text == "reading the state" {
			steps++
		}
	}
	r, err := Evaluate(t.Context(), opts.Dir, dev, evaluation)
	if err != nil || !r.OK || ran != before+1 || steps != 1 {
		t.Errorf("%v, failing %q; the gate ran %d times and reported %d steps", err, failing(r), ran-before, steps)
	}
}
