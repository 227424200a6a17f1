package skill

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/defect"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/skilltest"
)

// through runs the phases before p.
func through(t *testing.T, d *Deployment, p Phase) {
	t.Helper()
	for _, q := range Phases()[:p] {
		if _, err := d.RunPhase(context.Background(), q); err != nil {
			t.Fatal(err)
		}
	}
}

// Only a phase that has passed can be approved, once. A redirect makes all later phases pending.
func TestDecide(t *testing.T) {
	t.Parallel()
	d := deployment(t, skilltest.Tiny("smollm-mha"), skilltest.OpenCPU(t), small(t))
	refused := func(what string, decision Decision, want string) {
		t.Helper()
		records := d.State().Records
		if err := d.Decide(decision); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error about %q", what, err, want)
		}
		if d.State().Records != records {
			t.Errorf("%s left something in the journal", what)
		}
	}
	refused("approving nothing", Decision{Action: Approve}, "next is reference")
	through(t, d, SingleBlock)
	if p, waiting, ok := d.State().Due(); p != SingleBlock || !waiting || !ok {
		t.Fatalf("due: %v %v %v", p, waiting, ok)
	}
	refused("no action", Decision{}, "want approve")
	refused("a pass", Decision{Action: "pass"}, "want approve")
	refused("forward", Decision{Action: Redirect, Phase: FullModel}, "cannot redirect")
	refused("below", Decision{Action: Redirect, Phase: -1}, "cannot redirect")
	refused("to nobody", Decision{Action: Redirect, Phase: Reference, Skill: "no-such"}, "no-such")
	if err := d.Decide(Decision{Action: Approve, Note: "looks right"}); err != nil {
		t.Fatal(err)
	}
	if _, waiting, _ := d.State().Due(); waiting {
		t.Error("it still waits")
	}
	refused("approving twice", Decision{Action: Approve}, "no phase waits")
	if err := d.Decide(Decision{Action: Redirect, Phase: KernelValidation}); err != nil {
		t.Fatal(err)
	}
	if p, _, _ := d.State().Due(); p != KernelValidation {
		t.Errorf("after the redirect %s is due", p)
	}
}

// Look returns the result of a gate, and no phase passes by it.
func TestLookPassesNothing(t *testing.T) {
	d := deployment(t, skilltest.Tiny("smollm-mha"), skilltest.OpenCPU(t), small(t))
	through(t, d, SingleBlock)
	before := skilltest.Must(json.Marshal(d.State().Phases[SingleBlock:]))
	for _, p := range []Phase{SingleBlock, FullModel} {
		for _, name := range gatesOf(t, d, p) {
			if r, err := d.Look(context.Background(), p, name); err != nil || !r.OK || r.Summary == "" {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
		}
	}
	if after := skilltest.Must(json.Marshal(d.State().Phases[SingleBlock:])); string(after) != string(before) {
		t.Errorf("the state of phases was\n%s\nand is\n%s", before, after)
	}
	if _, err := d.Look(context.Background(), SingleBlock, "no-such"); err == nil || !strings.Contains(err.Error(),
		journal.GateBlockOps) {
		t.Errorf("an error that lists the gates was due: %v", err)
	}
	if _, err := d.Look(context.Background(), 99, journal.GateBlock); err == nil {
		t.Error("there is no phase 99")
	}
}

// A diagnosis of a device with a bug names the op and the skills that the phase would ask. A
// diagnosis of a right device names nothing.
func TestDiagnose(t *testing.T) {
	d := deployment(t, skilltest.Tiny("smollm-mha"), defect.Wrap(skilltest.OpenCPU(t)), small(t))
	through(t, d, SingleBlock)
	found, err := d.Diagnose(context.Background(), SingleBlock, journal.GateBlockOps)
	if err != nil || found.Symptom != nil || !found.Gate.OK {
		t.Errorf("a right device: %+v, %v", found, err)
	}
	last, err := d.Diagnose(context.Background(), SingleBlock, "")
	if err != nil || last.Gate.Name != journal.GateBlockFar {
		t.Errorf("without a failed gate, the last one is diagnosed: %+v, %v", last, err)
	}
	i := slices.IndexFunc(defect.All(), func(f *defect.Defect) bool { return f.Model == "smollm-mha" && !f.Precise })
	if i < 0 {
		t.Fatal("the catalogue has no defect for the model")
	}
	bug := defect.All()[i]
	if err := d.models.Close(); err != nil {
		t.Fatal(err)
	}
	found, err = d.Diagnose(defect.With(context.Background(), bug), FullModel, journal.GatePaper)
	if err != nil || found.Symptom == nil || found.Gate.OK || !slices.Contains(found.Skills,
		(bufferCorruption{}).Name()) {
		t.Fatalf("%s: %+v, %v", bug.Description, found, err)
	}
	if text := found.Symptom.String(); !strings.Contains(text, bug.Seen) {
		t.Errorf("%s, seen at %s: %s", bug.Description, bug.Seen, text)
	}
}

// A proposal is an attempt like any other: it starts the phase, gates and time decide, and the
// built-in steps are still tried.
func TestPropose(t *testing.T) {
	t.Parallel()
	d := deployment(t, skilltest.Tiny("smollm-mha"), skilltest.OpenCPU(t), small(t))
	ctx := context.Background()
	if _, err := d.Propose(ctx, "early", []byte(`{"chunk":16}`)); err == nil || !strings.Contains(err.Error(),
		"next is reference") {
		t.Errorf("before its phase: %v", err)
	}
	through(t, d, Prefill)
	for name, want := range map[string]string{`{"chunk":-5}`: Rejected, `{"chunk":1073741824}`: Rejected,
		`{}`: Skipped, `{"activations":"F32"}`: ""} {
		a, err := d.Propose(ctx, "chunks of 128 rows", []byte(name))
		if err != nil || want != "" && a.Outcome != want || a.Why == "" {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
	if p := d.State().Phases[Prefill]; p.Status != journal.Running {
		t.Errorf("the phase is %s, want begun", p.Status)
	}
	if _, err := d.RunPhase(ctx, Prefill); err != nil {
		t.Fatal(err)
	}
	var steps []string
	for _, a := range d.State().Attempted(Prefill) {
		steps = append(steps, a.Step)
	}
	if !slices.Contains(steps, "chunks of 128 rows") {
		t.Errorf("the proposal took a built-in step away: %q", steps)
	}
}

// A change to a recipe that has another form, or that changes the subject of the deployment, is
// refused before anything is tried.
func TestRecipeWith(t *testing.T) {
	host, array := Recipe{SeqLen: 64, Chunk: 32}, Recipe{SeqLen: 64, Prefill: new(plan.Knobs), Decode: new(plan.Knobs)}
	next, err := array.With([]byte(`{"prefill": {"merge_post": true, "context_reuse": true}}`))
	if err != nil || !next.Prefill.MergePost || !next.Prefill.ContextReuse || next.Decode.MergePost ||
		array.Prefill.MergePost {
		t.Errorf("%+v %+v, %v", next.Prefill, array.Prefill, err)
	}
	for _, tc := range []struct {
		recipe      Recipe
		patch, want string
	}{
		{host, ``, "want an object"},
		{host, `[]`, "want an object"},
		{host, `"verdict"`, "want an object"},
		{host, `{"verdict": "pass"}`, "verdict"},
		{host, `{"chunk": 1.5}`, "chunk"},
		{host, `{"chunk": 1e99}`, "chunk"},
		{host, `{"chunk": 16} {"chunk": 32}`, "trailing data"},
		{host, `{"seq_len": 128}`, "another folder"},
		{host, `{"prefill": {}}`, "array"},
		{array, `{"prefill": null}`, "array"},
		{array, `{"chunk": 16}`, "chunk"},
		{array, `{"prefill": {"merge_everything": true}}`, "merge_everything"},
		{host, `{"chunk": ` + strings.Repeat("1", journal.MaxPatch) + `}`, "at most"},
	} {
		if got, err := tc.recipe.With([]byte(tc.patch)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%.60s: %+v, %v; want an error about %q", tc.patch, got, err, tc.want)
		}
	}
}

// gatesOf returns the names of the gates of a phase.
func gatesOf(t *testing.T, d *Deployment, p Phase) []string {
	t.Helper()
	return gateNames(skilltest.Must(skilltest.Must(d.env(p)).gates(p)))
}
