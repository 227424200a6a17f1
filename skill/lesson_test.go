package skill

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/sim"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/lesson"
	"github.com/npukit/npukit/skill/internal/report"
	"github.com/npukit/npukit/skill/internal/skilltest"
	"github.com/npukit/npukit/skill/manual"
)

// effort is the work of a deployment.
type effort struct{ gates, hypotheses, measured int }

// toTheEnd runs a deployment to its end.
func toTheEnd(t *testing.T, path string, dev npu.Device, opts *Options) (*State, effort) {
	t.Helper()
	d := deployment(t, path, dev, opts)
	if err := d.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	records, _, err := journal.Read(filepath.Join(opts.Dir, journal.FileJournal))
	if err != nil {
		t.Fatal(err)
	}
	var took effort
	for _, r := range records {
		switch r.Kind {
		case journal.KindGate:
			took.gates++
		case journal.KindMeasure:
			took.measured++
		}
	}
	for _, n := range d.State().Skills {
		took.hypotheses += len(n.Value.Checked)
	}
	return d.State(), took
}

// promote writes the lessons of a workspace, and reads them as skills.
func promote(t *testing.T, work string, want int) []Skill {
	t.Helper()
	learnt, err := lesson.Learn(work)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	names, err := lesson.Write(dir, learnt)
	if err != nil || len(names) != want {
		t.Fatalf("lessons %q, %v: want %d", names, err, want)
	}
	if again, err := lesson.Write(dir, learnt); err != nil || len(again) != 0 {
		t.Errorf("promoted again: %q, %v", again, err)
	}
	for _, name := range names {
		data := skilltest.Must(os.ReadFile(filepath.Join(dir, name, "SKILL.md")))
		if _, err := manual.Parse(name, data); err != nil {
			t.Error(err)
		}
	}
	lessons, err := LoadLessons(dir)
	if err != nil {
		t.Fatal(err)
	}
	return lessons
}

// arrayModel writes a random model of one layer that the array can run.
func arrayModel(t *testing.T, hidden int) string {
	t.Helper()
	path := t.TempDir()
	spec := ckptgen.Spec{Family: "llama", Layers: 1, Hidden: hidden, Heads: hidden / 64, KVHeads: 2, HeadDim: 64,
		FFN: 2 * hidden, Vocab: 512, Context: 512, Tie: true}
	if err := ckptgen.Write(path, spec, 7); err != nil {
		t.Fatal(err)
	}
	return path
}

// A tuned plan is promoted, and the deployment of another model tries it first: it reaches a plan
// that is as fast, with fewer gates and fewer measurements.
func planLessonsSaveWork(t *testing.T, work string) {
	t.Helper()
	if testing.Short() {
		t.Skip("two deployments on the virtual array")
	}
	model := arrayModel(t, 384)
	run := func(lessons []Skill) (*State, effort) {
		opts := small(t)
		opts.SeqLen, opts.Skills = 64, lessons
		return toTheEnd(t, model, skilltest.OpenSim(t, sim.Options{}), opts)
	}
	without, before := run(nil)
	with, after := run(promote(t, work, 2))
	t.Logf("without lessons %+v, with %+v", before, after)
	if after.gates >= before.gates || after.measured >= before.measured {
		t.Errorf("with lessons it took %+v, without %+v", after, before)
	}
	a, _ := without.LastMeasured(without.Plan)
	b, _ := with.LastMeasured(with.Plan)
	if b.TTFT > a.TTFT*1.001 || b.TokensPerSec < a.TokensPerSec*0.999 {
		t.Errorf("with lessons the plan needs %v and %v tokens/s, without %v and %v", b.TTFT, b.TokensPerSec, a.TTFT,
			a.TokensPerSec)
	}
}

// A remedy that a skill has found is promoted, and the next deployment tests it first, in place of
// several hypotheses.
func TestRemedyLessonsSaveWork(t *testing.T) {
	t.Parallel()
	run := func(model string, lessons []Skill) (string, *State, effort) {
		opts := small(t)
		opts.Gates = []Gate{{Name: "precise", Phases: []Phase{SingleBlock}, Check: func(_ context.Context,
			e *Env) (Verdict, error) {
			c := Checks{Name: "precise"}
			c.Hold(e.Recipe().Activations == dtype.F32, "precise", "activations are F32")
			return c, nil
		}}}
		searching := ownSkill{name: "searching", trigger: func(s Symptom) bool { return s.Gate == "precise" },
			run: func(ctx context.Context, e *Env) (Outcome, error) {
				checked := []Hypothesis{{Cause: "the moon"}, {Cause: "the weather"}}
				r := e.Recipe()
				r.Activations, r.Cache = dtype.F32, dtype.F32
				return Outcome{Cause: "activations are rounded", Fixed: true, Checked: checked},
					e.SetRecipe(r, "a test")
			}}
		opts.Skills = append(lessons, searching)
		s, took := toTheEnd(t, skilltest.Tiny(model), skilltest.OpenCPU(t), opts)
		return opts.Dir, s, took
	}
	work, _, before := run("smollm-mha", nil)
	learnt, err := lesson.Learn(work)
	if err != nil {
		t.Fatal(err)
	}
	// A machine under load does not always keep the same changes; only the remedy is wanted.
	learnt = slices.DeleteFunc(learnt, func(l lesson.Lesson) bool { return l.Trigger.Gate == "" })
	if len(learnt) != 1 || !strings.Contains(string(learnt[0].Change), "F32") {
		t.Fatalf("learnt: %+v", learnt)
	}
	_, with, after := run("qwen2-bias", []Skill{lessonSkill{learnt[0]}})
	if before.hypotheses != 2 || after.hypotheses != 1 || with.Skills[0].Value.Skill != learnt[0].Name {
		t.Errorf("without the lesson %+v, with it %+v; asked first: %+v", before, after, with.Skills[0].Value)
	}
}

// A deployment that has not reached its end has no lessons.
func TestLessonsNeedAFinishedDeployment(t *testing.T) {
	opts := small(t)
	d := deployment(t, skilltest.Tiny("smollm-mha"), skilltest.OpenCPU(t), opts)
	through(t, d, SingleBlock)
	if l, err := lesson.Learn(opts.Dir); err != nil || len(l) != 0 {
		t.Errorf("%+v, %v", l, err)
	}
}

// A lesson that does not fit is skipped, and the deployment takes its usual course.
func TestLessonThatDoesNotFit(t *testing.T) {
	opts := small(t)
	p := Prefill
	for i, l := range []lesson.Lesson{
		{Device: "cpu", Trigger: lesson.Trigger{Phase: &p}, Change: json.RawMessage(`{"chunk":-1}`)},
		{Device: "cpu", Trigger: lesson.Trigger{Phase: &p}, Change: json.RawMessage(`{"prefill":{"merge_post":true}}`)},
		{Device: "sim", Trigger: lesson.Trigger{Phase: &p}, Change: json.RawMessage(`{"chunk":16}`)},
	} {
		l.Name = fmt.Sprintf("lesson-%d", i)
		opts.Skills = append(opts.Skills, lessonSkill{l})
	}
	d := deployment(t, skilltest.Tiny("smollm-mha"), skilltest.OpenCPU(t), opts)
	through(t, d, Decode)
	got := map[string]string{}
	for _, a := range d.State().Attempted(Prefill) {
		got[a.Step] = a.Outcome
	}
	if got["lesson-0"] != Rejected || got["lesson-1"] != "" || got["lesson-2"] != "" ||
		got["chunks of 128 rows"] == "" {
		t.Errorf("attempts: %v", got)
	}
}

// After a redirect the changes of the first attempt are in the plan already and are skipped. The
// lessons are those of the accepted plan, as without the redirect.
func TestLessonsBehindARedirect(t *testing.T) {
	t.Parallel()
	lessons := func(redirects map[Phase]Phase) map[string]string {
		opts := small(t)
		opts.SeqLen, opts.plain = 64, true
		opts.Approve = func(_ context.Context, r PhaseReport) (Decision, error) {
			to, ok := redirects[r.Phase]
			if !ok {
				return Decision{Action: Approve}, nil
			}
			delete(redirects, r.Phase)
			return Decision{Action: Redirect, Phase: to, Note: "look again"}, nil
		}
		d := deployment(t, arrayModel(t, 256), skilltest.OpenSim(t, sim.Options{}), opts)
		if err := d.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		if len(redirects) > 0 {
			t.Fatalf("not redirected: %v", redirects)
		}
		list, err := lesson.Learn(opts.Dir)
		if err != nil {
			t.Fatal(err)
		}
		changes := map[string]string{}
		for _, l := range list {
			changes[lesson.PhaseText(l.Trigger.Phase)] = string(l.Change)
		}
		return changes
	}
	want := lessons(nil)
	if len(want) != 2 || !strings.Contains(want[Prefill.String()], "merge_post") {
		t.Fatalf("without a redirect: %q", want)
	}
	for from, to := range map[Phase]Phase{Decode: Prefill, Prefill: Prefill} {
		got := lessons(map[Phase]Phase{from: to})
		for p, change := range want {
			if got[p] != change {
				t.Errorf("%s to %s, lesson of %s:\n%s, want\n%s", from, to, p, got[p], change)
			}
		}
	}
}

// A change that a later attempt undoes is no lesson, and one of an earlier attempt is.
func TestLessonsOverAttempts(t *testing.T) {
	opts := small(t)
	opts.plain = true
	d := deployment(t, skilltest.Tiny("smollm-mha"), skilltest.OpenCPU(t), opts)
	if err := d.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	records, _, err := journal.Read(filepath.Join(opts.Dir, journal.FileJournal))
	if err != nil {
		t.Fatal(err)
	}
	// Known attempts replace those of this machine: kept, with the gates of the phase.
	var forged []journal.Record
	for _, r := range records {
		switch {
		case r.Kind == journal.KindAttempt:
			continue
		case r.Kind == journal.KindFinish && r.Phase == Prefill:
			forged = append(forged, keptAttempts(t, records, d.State())...)
		}
		forged = append(forged, r)
	}
	list, err := lesson.LearnFrom(forged)
	if err != nil || len(list) != 1 || string(list[0].Change) != `{"cache":"F32"}` {
		t.Errorf("%+v, %v", list, err)
	}
}

// keptAttempts returns the records of two attempts: one that changes chunk and cache, and one that
// undoes the chunk.
func keptAttempts(t *testing.T, records []journal.Record, s *State) []journal.Record {
	t.Helper()
	gate := s.Phases[Prefill].Gates[0]
	both, back := report.NaiveOf(s), report.NaiveOf(s)
	both.Chunk = 8
	if err := both.Cache.UnmarshalText([]byte("F32")); err != nil {
		t.Fatal(err)
	}
	back.Cache = both.Cache
	var list []journal.Record
	for _, r := range []Recipe{both, back} {
		a := Attempt{Step: "a test", Outcome: Kept, Recipe: r, Plan: s.Plan, Gates: []string{gate.Key()}}
		data := skilltest.Must(json.Marshal(a))
		list = append(list, journal.Record{Seq: records[len(records)-1].Seq, Kind: journal.KindAttempt, Phase: Prefill,
			Data: data})
	}
	return list
}
