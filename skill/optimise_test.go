package skill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/published"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/sim"
	"github.com/npukit/npukit/skill/internal/skilltest"
)

// A change whose merged programs hang is diagnosed on its own plan, and not on the plan before,
// which runs. The deployment keeps the plan before.
func TestMergeThatHangs(t *testing.T) {
	ctx, f, most := context.Background(), &fault{}, 0
	f.before = func(r *npu.Run, host bool) error {
		if !host && len(r.Exec.Program().Launches) > most {
			return fmt.Errorf("seeded: %w", npu.ErrTimeout)
		}
		return nil
	}
	opts := quick(t)
	opts.plain, opts.Observe = true, nil
	d := deployment(t, skilltest.ArrayModel(t), seeded{skilltest.OpenSim(t, sim.Options{}), f, false}, opts)
	if _, err := d.RunPhase(ctx, Reference); err != nil {
		t.Fatal(err)
	}
	e := skilltest.Must(d.env(Prefill))
	for _, q := range skilltest.Must(e.Plan()).Programs {
		most = max(most, len(q.Launches))
	}
	f.on = true
	before := d.State().Plan
	hung := 0
	for _, c := range (mergeKernels{}).Changes(e) {
		a, err := e.Propose(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		if a.Outcome == Rejected && strings.Contains(a.Why, npu.ErrTimeout.Error()) {
			hung++
			if !strings.Contains(a.Why, "debug-multi-launch-merge: routing congestion") ||
				strings.Contains(a.Why, "once") {
				t.Errorf("%s: %s", c.Name, a.Why)
			}
		}
	}
	if hung == 0 || d.State().Plan != before || skilltest.Must(e.bench.PlanHash()) != before {
		t.Errorf("%d changes hung; the plan was changed: %v", hung, d.State().Plan != before)
	}
}

// asks is a skill that uses everything in an environment, and proposes nothing.
type asks struct{ name string }

func (s asks) Name() string                             { return s.name }
func (asks) Trigger(Symptom) bool                       { return false }
func (asks) Run(context.Context, *Env) (Outcome, error) { return Outcome{}, nil }
func (asks) Changes(e *Env) []Change {
	ctx := context.Background()
	p, err := e.Plan()
	_, session := e.Session(ctx)
	_, propose := e.Propose(ctx, Change{Name: "merged", Take: func(r *Recipe) { r.Prefill.MergePost = true }})
	_, measure := e.d.timer.Measure(ctx, e.Phase, e.bench.Recipe)
	set := e.SetRecipe(e.Recipe(), "no reason")
	issue := e.Issue(Issue{})
	if err != nil || p.SeqLen != e.State.Subject.SeqLen || e.Config.Layers != p.Model.Layers || session == nil ||
		propose == nil || measure == nil || set == nil || issue == nil ||
		e.Checkpoint != nil || e.Device != nil {
		panic(errors.Join(errors.New("the environment of a forecast"), err, session, propose, measure, set, issue))
	}
	return nil
}

// A user's skill is asked for changes in a forecast too. It gets a config and a plan, and cannot
// compute.
func TestForeseeWithASkill(t *testing.T) {
	ck := skilltest.Must(checkpoint.Open(skilltest.ArrayModel(t), nil))
	defer ck.Close()
	f, err := Foresee(context.Background(), ck.Config(), &Options{SeqLen: 96, Skills: []Skill{asks{"asks"}}})
	if err != nil || len(f.Steps) < 3 {
		t.Errorf("%d steps, %v", len(f.Steps), err)
	}
}

// The optimisation of each published model arrives at the published programs: their names, instances
// and arguments are compared with the published lists, layouts and mappings with the planner's form
// of them, whose mappings are those of the published rows.
func TestForecastArrivesAtPublishedPrograms(t *testing.T) {
	for _, m := range published.Models() {
		f, err := Foresee(context.Background(), &m.Config, nil)
		if err != nil {
			t.Fatal(err)
		}
		want, err := published.Programs(m.Folder)
		if err != nil {
			t.Fatal(err)
		}
		pass := f.Plan.Prefill[len(f.Plan.Prefill)-1]
		for phase, steps := range map[string][]plan.Step{
			"prefill": pass.Steps, "decode": f.Plan.Decode.Steps, "both": f.Plan.Decode.Head,
		} {
			var got []*npu.Program
			for _, s := range steps {
				p := f.Plan.Program(s.Program)
				if s.On == plan.OnDevice && !slices.Contains(got, p) {
					got = append(got, p)
				}
			}
			for _, d := range published.Differences(phase, want, got) {
				t.Errorf("%s: %s", m.Name, d)
			}
		}
		tuned, err := plan.NewNPU(&m.Config, &plan.NPUOptions{SeqLen: f.Recipe.SeqLen})
		if err != nil {
			t.Fatal(err)
		}
		if diff := plan.Diff(tuned, f.Plan); len(diff) != 0 {
			t.Errorf("%s: from the published plan to the forecast's: %q", m.Name, diff)
		}
	}
}

// A recipe that leaves a type to the device describes it as the default.
func TestDescribeDefaults(t *testing.T) {
	was := Recipe{SeqLen: 96, Chunk: 32}
	for _, c := range hostChanges(Decode, 96) {
		is := was.Clone()
		c.Take(&is)
		if text := is.Describe(was); !strings.HasPrefix(text, "cache default -> ") {
			t.Errorf("%s: %q", c.Name, text)
		}
	}
}
