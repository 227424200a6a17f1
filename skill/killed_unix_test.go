//go:build unix

package skill

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/npukit/npukit/internal/childproc/orphantest"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/sim"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/skilltest"
	"github.com/npukit/npukit/skill/internal/timing"
)

// deployUntilKilled deploys the model in the workspace's parent folder on the virtual array, whose
// decisions are always the same, and records every part of its work.
func deployUntilKilled(work string) (err error) {
	dev, err := sim.Open(nil)
	if err != nil {
		return err
	}
	d, err := NewDeployment(work+"-model", dev, killedOptions(work))
	if err != nil {
		return err
	}
	return d.Run(context.Background())
}

func killedOptions(work string) *Options {
	return &Options{Dir: work, SeqLen: 64, Positions: 32, Repetitions: 3, plain: true, notes: time.Nanosecond}
}

// A deployment that is killed with kill -9 again and again ends with the plan of one that was not,
// and repeats nothing that it has recorded: no gate, no part of one, no attempt, no measurement.
func TestKilledAtRandom(t *testing.T) {
	t.Parallel()
	model := arrayModel(t, 256)
	whole := skilltest.Must(NewDeployment(model, skilltest.OpenSim(t, sim.Options{}),
		killedOptions(filepath.Join(t.TempDir(), "w"))))
	defer whole.Close()
	began := time.Now()
	if err := whole.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	work := filepath.Join(t.TempDir(), "w")
	skilltest.Must(0, os.CopyFS(work+"-model", os.DirFS(model)))
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	kills := 0
	for {
		child := exec.Command(skilltest.Must(os.Executable()))
		child.Env = append(os.Environ(), orphanMode+"=deployment "+work)
		skilltest.Must(0, child.Start())
		ended := make(chan error, 1)
		go func() { ended <- child.Wait() }()
		// Longer and longer, so that it ends even if the machine becomes busier.
		limit := time.Duration((0.05 + 0.3*rng.Float64()) * (1 + float64(kills)/4) * float64(took))
		select {
		case <-ended:
		case <-time.After(limit):
			skilltest.Must(0, child.Process.Kill())
			<-ended
			kills++
			continue
		}
		break
	}
	d := deployment(t, work+"-model", skilltest.OpenSim(t, sim.Options{}), killedOptions(work))
	if s := d.State(); s.Plan != whole.State().Plan || s.Phases[Finalise].Status != journal.Passed {
		t.Errorf("killed %d times: plan %.12s, want %.12s; finalise is %s", kills, s.Plan,
			whole.State().Plan, s.Phases[Finalise].Status)
	}
	if kills == 0 {
		t.Error("it was never killed")
	}
	records, _, err := journal.Read(filepath.Join(work, journal.FileJournal))
	if err != nil {
		t.Fatal(err)
	}
	seen, parts := map[string]bool{}, 0
	for _, r := range records {
		what := ""
		switch r.Kind {
		case journal.KindGate:
			what = skilltest.Must(dataOf[GateResult](r)).Key()
		case journal.KindPart:
			n := skilltest.Must(dataOf[journal.PartNote](r))
			what = n.Gate + " " + n.Part
			parts++
		case journal.KindAttempt:
			what = skilltest.Must(dataOf[Attempt](r)).Step
		case journal.KindMeasure:
			what = skilltest.Must(dataOf[Measurement](r)).Plan
			r.Phase = 0 // a prediction holds in every phase
		default:
			continue
		}
		key := r.Phase.String() + " " + string(r.Kind) + " " + what
		if seen[key] {
			t.Errorf("killed %d times: %s was done again", kills, key)
		}
		seen[key] = true
	}
	t.Logf("killed %d times in %v; %d parts were noted", kills, took, parts)
	if parts == 0 {
		t.Error("no part of a gate was noted")
	}
	if left := skilltest.Must(filepath.Glob(filepath.Join(work, ".npukit-*"))); len(left) > 0 {
		t.Errorf("left in the workspace: %q", left)
	}
}

func dataOf[T any](r journal.Record) (v T, err error) { return v, json.Unmarshal(r.Data, &v) }

// The next process resumes a comparison that was interrupted: recorded turns are not taken again.
func TestComparisonIsTakenUp(t *testing.T) {
	path, opts, ctx := skilltest.Tiny("smollm-mha"), small(t), context.Background()
	opts.notes = time.Nanosecond
	base := skilltest.OpenCPU(t)
	submits, most := 0, 1<<30
	dev := &flaky{Device: base, fail: func() error {
		if submits++; submits > most {
			return npu.ErrDeviceLost
		}
		return nil
	}}
	turns := func(d *Deployment) (n int) {
		for _, x := range d.log.State.TurnsOf(Prefill) {
			n += len(x.Turns)
		}
		return n
	}
	compare := func(d *Deployment) (Measurement, error) {
		e := skilltest.Must(d.env(Prefill))
		changed := e.Recipe()
		changed.Chunk = 8
		_, after, err := d.timer.Compare(ctx, Prefill, e.bench.Recipe, changed)
		return after, err
	}
	d := deployment(t, path, dev, opts)
	if _, err := compare(d); err != nil {
		t.Fatal(err)
	}
	whole, all := submits, turns(d)
	if all < 2*opts.Repetitions-1 {
		t.Fatalf("%d turns", all)
	}
	skilltest.Must(0, d.Close())
	opts.Dir = t.TempDir()
	submits, most = 0, whole/2
	d = deployment(t, path, dev, opts)
	if _, err := compare(d); err == nil {
		t.Fatal("it goes on without a device")
	}
	had := turns(d)
	skilltest.Must(0, d.Close())
	submits, most = 0, 1<<30
	d = deployment(t, path, dev, opts)
	after, err := compare(d)
	if err != nil || had == 0 || after.Paired.First.Count != turns(d) || after.Paired.Plan == after.Plan {
		t.Errorf("%v; %d turns before, %d in all, %+v", err, had, turns(d), after.Paired)
	}
	if more := turns(d) - had; more > max(1, timing.DisturbedTimes*(2*opts.Repetitions-1)-had) {
		t.Errorf("%d turns were there, and %d more were taken", had, more)
	}
	// Turns of other kernels or threads do not count.
	other := skilltest.Must(cpu.Open(&cpu.Options{Threads: 1}))
	defer other.Close()
	skilltest.Must(0, d.Close())
	d = deployment(t, path, other, opts)
	before := turns(d)
	if after, err := compare(d); err != nil || after.Paired.First.Count != turns(d)-before {
		t.Errorf("on another device: %v, %d turns of %d", err, after.Paired.First.Count, turns(d)-before)
	}
}

// kill -9 of a deployment ends its evaluator, even one that hangs.
func TestChildrenEndWithTheirParent(t *testing.T) {
	for what, processes := range map[string]int{"evaluator": 1} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "pids")
			parent := exec.Command(skilltest.Must(os.Executable()))
			parent.Env = append(os.Environ(), orphanMode+"="+what+" "+file)
			skilltest.Must(0, parent.Start())
			pids := orphantest.PIDs(t, file, processes)
			skilltest.Must(0, parent.Process.Kill())
			_ = parent.Wait() // killed
			orphantest.Gone(t, pids...)
		})
	}
}
