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
)

// effort is what a deployment took.
type effort struct{ gates, hypotheses, measured int }

// toTheEnd deploys a model to its end.
func toTheEnd(t *testing.T, path string, dev npu.Device, opts *Options) (*State, effort) {
	t.Helper()
	d := deployment(t, path, dev, opts)
	if err := d.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	records, _, err := ReadJournal(filepath.Join(opts.Dir, FileJournal))
	if err != nil {
		t.Fatal(err)
	}
	var took effort
	for _, r := range records {
		switch r.Kind {
		case KindGate:
			took.gates++
		case KindMeasure:
			took.measured++
		}
	}
	for _, n := range d.State().Skills {
		took.hypotheses += len(n.Value.Checked)
	}
	return d.State(), took
}

// promote writes what a workspace has learnt, and reads it as skills.
func promote(t *testing.T, work string, want int) []Skill {
	t.Helper()
	learnt, err := LessonsOf(work)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	names, err := WriteLessons(dir, learnt)
	if err != nil || len(names) != want {
		t.Fatalf("lessons %q, %v: want %d", names, err, want)
	}
	if again, err := WriteLessons(dir, learnt); err != nil || len(again) != 0 {
		t.Errorf("promoted again: %q, %v", again, err)
	}
	if manuals, err := ReadManuals(dir); err != nil || len(manuals) != want {
		t.Errorf("%d manuals, %v", len(manuals), err)
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
	spec := ckptgen.Spec{Family: "llama", Layers: 1, Hidden: hidden, Heads: hidden / 64, KVHeads: 2, HeadDim: 64, FFN: 2 * hidden, Vocab: 512, Context: 512, Tie: true}
	if err := ckptgen.Write(path, spec, 7); err != nil {
		t.Fatal(err)
	}
	return path
}

// A tuned plan, that of the workspace, is promoted, and the deployment of another model tries it first: it comes to a plan that is as fast, with fewer gates asked and fewer
// plans measured.
func planLessonsSaveWork(t *testing.T, work string) {
	t.Helper()
	if testing.Short() {
		t.Skip("two deployments on the virtual array")
	}
	model := arrayModel(t, 384)
	run := func(lessons []Skill) (*State, effort) {
		opts := small(t)
		opts.SeqLen, opts.Skills = 64, lessons
		return toTheEnd(t, model, openSim(t, sim.Options{}), opts)
	}
	without, before := run(nil)
	with, after := run(promote(t, work, 2))
	t.Logf("without lessons %+v, with %+v", before, after)
	if after.gates >= before.gates || after.measured >= before.measured {
		t.Errorf("with lessons it took %+v, without %+v", after, before)
	}
	a, _ := without.lastMeasured(without.Plan)
	b, _ := with.lastMeasured(with.Plan)
	if b.TTFT > a.TTFT*1.001 || b.TokensPerSec < a.TokensPerSec*0.999 {
		t.Errorf("with lessons the plan needs %v and %v tokens/s, without %v and %v", b.TTFT, b.TokensPerSec, a.TTFT, a.TokensPerSec)
	}
}

// A remedy that a skill has found by trying is promoted, and the next deployment tries it first and tests one hypothesis in the place of several.
func TestRemedyLessonsSaveWork(t *testing.T) {
	t.Parallel()
	run := func(model string, lessons []Skill) (string, *State, effort) {
		opts := small(t)
		opts.Gates = []Gate{{Name: "precise", Phases: []Phase{SingleBlock}, Check: func(_ context.Context, e *Env) (Verdict, error) {
			c := Checks{Name: "precise"}
			c.Hold(e.Recipe().Activations == dtype.F32, "precise", "activations are F32")
			return c, nil
		}}}
		searching := ownSkill{name: "searching", trigger: func(s Symptom) bool { return s.Gate == "precise" },
			run: func(ctx context.Context, e *Env) (Outcome, error) {
				for _, cause := range []string{"the moon", "the weather"} {
					e.Hypothesis(Hypothesis{Cause: cause, Evidence: "it is not"})
				}
				r := e.Recipe()
				r.Activations, r.Cache = dtype.F32, dtype.F32
				return Outcome{Cause: "activations are rounded", Fixed: true}, e.SetRecipe(r, "a test")
			}}
		opts.Skills = append(lessons, searching)
		s, took := toTheEnd(t, tiny(model), openCPU(t), opts)
		return opts.Dir, s, took
	}
	work, _, before := run("smollm-mha", nil)
	learnt, err := LessonsOf(work)
	if err != nil {
		t.Fatal(err)
	}
	// What a machine under load keeps in the optimisation phases is not always the same: only the remedy is wanted here.
	learnt = slices.DeleteFunc(learnt, func(l Lesson) bool { return l.Trigger.Gate == "" })
	if len(learnt) != 1 || !strings.Contains(string(learnt[0].Change), "F32") {
		t.Fatalf("learnt: %+v", learnt)
	}
	_, with, after := run("qwen2-bias", []Skill{lessonSkill{learnt[0]}})
	if before.hypotheses != 2 || after.hypotheses != 1 || with.Skills[0].Value.Skill != learnt[0].Name {
		t.Errorf("without the lesson %+v, with it %+v; asked first: %+v", before, after, with.Skills[0].Value)
	}
}

// A deployment that has not come to its end has verified nothing, and teaches nothing.
func TestLessonsNeedAFinishedDeployment(t *testing.T) {
	opts := small(t)
	d := deployment(t, tiny("smollm-mha"), openCPU(t), opts)
	through(t, d, SingleBlock)
	if l, err := LessonsOf(opts.Dir); err != nil || len(l) != 0 {
		t.Errorf("%+v, %v", l, err)
	}
}

// A lesson that does not fit is left out where it is tried, and the deployment goes its usual way.
func TestLessonThatDoesNotFit(t *testing.T) {
	opts := small(t)
	p := Prefill
	for i, l := range []Lesson{
		{Device: "cpu", Trigger: LessonTrigger{Phase: &p}, Change: json.RawMessage(`{"chunk":-1}`)},
		{Device: "cpu", Trigger: LessonTrigger{Phase: &p}, Change: json.RawMessage(`{"prefill":{"merge_post":true}}`)},
		{Device: "sim", Trigger: LessonTrigger{Phase: &p}, Change: json.RawMessage(`{"chunk":16}`)},
	} {
		l.Name = fmt.Sprintf("lesson-%d", i)
		opts.Skills = append(opts.Skills, lessonSkill{l})
	}
	d := deployment(t, tiny("smollm-mha"), openCPU(t), opts)
	through(t, d, Decode)
	got := map[string]string{}
	for _, a := range d.State().attempted(Prefill) {
		got[a.Step] = a.Outcome
	}
	if got["lesson-0"] != Rejected || got["lesson-1"] != "" || got["lesson-2"] != "" || got["chunks of 128 rows"] == "" {
		t.Errorf("attempts: %v", got)
	}
}

// Files of lessons are held to their form before anything is made of them.
func TestLoadLessons(t *testing.T) {
	const good = `{"name":"lesson-a","device":"cpu","trigger":{"error":"timeout"},"cause":"c","change":{"chunk":16},"remedy":"r","evidence":"e"}`
	for _, tc := range []struct{ name, old, new, want string }{
		{"good", "", "", ""},
		{"a verdict", `"cause"`, `"verdict":"pass","cause"`, "verdict"},
		{"another name", "lesson-a", "lesson-b", "folder"},
		{"the name of a built-in skill", "lesson-a", "full-model", "begins with"},
		{"a path", "lesson-a", "lesson-../x", "lower-case"},
		{"no device", `"cpu"`, `""`, "device"},
		{"no trigger", `{"error":"timeout"}`, `{}`, "trigger"},
		{"two triggers", `"error":"timeout"`, `"error":"timeout","gate":"paper"`, "trigger"},
		{"an error that nobody knows", "timeout", "fire", "trigger"},
		{"a phase that tries no plans", `"error":"timeout"`, `"phase":"evaluation"`, "trigger"},
		{"no change", `{"chunk":16}`, `{}`, "proposes nothing"},
		{"a change that is no object", `{"chunk":16}`, `[]`, "no object"},
		{"no JSON", `{"name"`, `"name"`, "lesson.json"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "lesson-a"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "lesson-a", FileLesson), []byte(strings.Replace(good, tc.old, tc.new, 1)), 0o644); err != nil {
				t.Fatal(err)
			}
			list, err := LoadLessons(dir)
			if tc.want == "" && (err != nil || len(list) != 1) || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%d lessons, %v; want an error about %q", len(list), err, tc.want)
			}
		})
	}
	if _, err := LoadLessons("/no/such/folder"); err == nil {
		t.Error("a folder that is not there is no error")
	}
}

// Of a remedy only what the final plan still has was verified.
func TestLastingChange(t *testing.T) {
	before := Recipe{SeqLen: 40, Chunk: 16, Activations: dtype.BF16, Cache: dtype.BF16}
	remedy := before
	remedy.Activations, remedy.Cache = dtype.F32, dtype.F32
	tuned := remedy
	tuned.Cache, tuned.Chunk = dtype.F16, 32
	for _, tc := range []struct {
		name  string
		final Recipe
		want  string
	}{
		{"all of it", remedy, `{"activations":"F32","cache":"F32"}`},
		{"half of it", tuned, `{"activations":"F32"}`},
		{"given up", before, ""},
	} {
		if got, err := lastingChange(before, remedy, tc.final); err != nil || string(got) != tc.want {
			t.Errorf("%s: %s, %v; want %s", tc.name, got, err, tc.want)
		}
	}
}

// A lesson that is too long for a manual is an error, and nothing is written.
func TestLessonTooLong(t *testing.T) {
	p, dir := Prefill, t.TempDir()
	l := Lesson{Name: "lesson-long", Device: "cpu", Trigger: LessonTrigger{Phase: &p}, Cause: "c", Change: []byte("{\"chunk\":" + strings.Repeat("\n", 600) + "512}"), Remedy: "r", Evidence: "e"}
	if written, err := WriteLessons(dir, []Lesson{l}); err == nil || len(written) > 0 || !strings.Contains(err.Error(), "lesson-long") {
		t.Errorf("%v, %v", written, err)
	}
	if list := must(os.ReadDir(dir)); len(list) > 0 {
		t.Errorf("there is %v", list)
	}
}
