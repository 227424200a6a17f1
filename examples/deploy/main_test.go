package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/deploytest"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/skill"
)

func TestMain(m *testing.M) {
	skill.Main(open, &skill.EvaluateOptions{Gates: gates()})
	os.Exit(m.Run())
}

// The script ends with an accepted plan, its gate was asked by the phases and by the evaluator, its
// skill was heard, and its approval is in the journal.
func TestDeploy(t *testing.T) {
	work := filepath.Join(t.TempDir(), "w")
	var out strings.Builder
	again := deploytest.Deploy(t, work, func() error {
		return deploy(context.Background(), &out, filepath.Join(testenv.Root(), "testdata", "tiny-models",
			"smollm-mha"), work)
	})
	if p, err := plan.Read(filepath.Join(work, "plan.json")); err != nil || p.Status != plan.Accepted {
		t.Errorf("the plan: %v, %v", p, err)
	}
	s, err := skill.ReadState(work)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []skill.Phase{skill.FullModel, skill.Finalise} {
		if !slices.ContainsFunc(s.Phases[p].Gates, func(g skill.GateResult) bool {
			return g.Name == "our-text" &&
				g.OK
		}) {
			t.Errorf("phase %s was not asked about our text", p)
		}
	}
	evaluated := false
	for _, c := range s.Evaluation.Checks {
		evaluated = evaluated || c.Name == "gate our-text" && c.OK
	}
	if !evaluated {
		t.Error("the evaluator was not asked about our text")
	}
	tried := false
	for _, a := range s.Attempts {
		tried = tried || a.Value.Step == "chunks of 1024 rows"
	}
	if !tried {
		t.Error("the skill's change was not tried")
	}
	if n := len(s.Decisions); n < int(skill.Evaluation) || n > int(skill.Evaluation) && !again ||
		s.Decisions[0].Value.Note != "by the script" {
		t.Errorf("decisions: %+v", s.Decisions)
	}
	if !strings.Contains(out.String(), "the plan is accepted") {
		t.Errorf("it says %s", &out)
	}
}
