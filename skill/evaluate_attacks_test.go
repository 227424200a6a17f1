package skill

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/npukit/npukit/gate/gatetest"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/skill/internal/gates"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/models"
	"github.com/npukit/npukit/skill/internal/report"
	"github.com/npukit/npukit/skill/internal/skilltest"
	"github.com/npukit/npukit/skill/internal/workspace"
)

// victim is a finished deployment with a copy of its model, for an attack.
type victim struct {
	t          *testing.T
	dir, model string
}

// deployed deploys a model with a golden file once for all attacks. Its final plan is not the
// first.
func deployed(t *testing.T) func(t *testing.T) *victim {
	t.Helper()
	base := t.TempDir()
	path := filepath.Join(base, "m")
	if err := os.CopyFS(path, os.DirFS(skilltest.Tiny("smollm-mha"))); err != nil {
		t.Fatal(err)
	}
	opts := small(t)
	d := deployment(t, path, skilltest.OpenCPU(t), opts)
	if err := d.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	endElsewhere(t, d)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	return func(t *testing.T) *victim {
		mu.Lock()
		defer mu.Unlock()
		v := &victim{t, filepath.Join(t.TempDir(), "w"), filepath.Join(t.TempDir(), "m")}
		for to, from := range map[string]string{v.dir: opts.Dir, v.model: path} {
			if err := os.CopyFS(to, os.DirFS(from)); err != nil {
				t.Fatal(err)
			}
		}
		return v
	}
}

func (v *victim) read(name string) []byte {
	v.t.Helper()
	data, err := os.ReadFile(filepath.Join(v.dir, name))
	if err != nil {
		v.t.Fatal(err)
	}
	return data
}

func (v *victim) write(name string, data []byte) {
	v.t.Helper()
	if err := os.WriteFile(filepath.Join(v.dir, name), data, 0o644); err != nil {
		v.t.Fatal(err)
	}
}

// replace changes the first occurrence of a text in a file of the workspace.
func (v *victim) replace(name, old, new string) {
	v.t.Helper()
	data := v.read(name)
	if !bytes.Contains(data, []byte(old)) {
		v.t.Fatalf("%s has no %q", name, old)
	}
	v.write(name, bytes.Replace(data, []byte(old), []byte(new), 1))
}

// lines returns the lines of the journal.
func (v *victim) lines() [][]byte {
	return bytes.SplitAfter(bytes.TrimSuffix(v.read(journal.FileJournal), []byte("\n")), []byte("\n"))
}

// forge rewrites records and seals the whole journal again, as an attacker could.
func (v *victim) forge(change func(r *journal.Record) (keep bool)) {
	v.t.Helper()
	records, _, err := journal.Read(filepath.Join(v.dir, journal.FileJournal))
	if err != nil {
		v.t.Fatal(err)
	}
	var out []byte
	sum, seq := "", 0
	for _, r := range records {
		if !change(&r) {
			continue
		}
		seq++
		r.Seq = seq
		line, err := r.Seal(sum)
		if err != nil {
			v.t.Fatal(err)
		}
		sum = r.Sum
		out = append(append(out, line...), '\n')
	}
	v.write(journal.FileJournal, out)
}

// rewrite changes the data of all records of a kind, and writes the pages that follow from them.
func rewrite[T any](v *victim, kind journal.Kind, change func(x *T)) {
	v.t.Helper()
	v.forge(func(r *journal.Record) bool {
		if r.Kind != kind {
			return true
		}
		var x T
		if err := json.Unmarshal(r.Data, &x); err != nil {
			v.t.Fatal(err)
		}
		change(&x)
		data, err := json.Marshal(x)
		if err != nil {
			v.t.Fatal(err)
		}
		r.Data = data
		return true
	})
	v.consistent()
}

// consistent writes the files that are derived from the journal, so that only the lie itself is
// wrong.
func (v *victim) consistent() {
	v.t.Helper()
	s, err := ReadState(v.dir)
	if err != nil {
		v.t.Fatal(err)
	}
	v.write("progress.md", report.Progress(s))
	p, err := report.PerformanceOf(s)
	if err != nil {
		v.t.Fatal(err)
	}
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		v.t.Fatal(err)
	}
	v.write(workspace.FilePerformance, append(data, '\n'))
}

// swapPlan writes another plan to plan.json, and returns its hash.
func (v *victim) swapPlan(change func(p *plan.Plan)) string {
	v.t.Helper()
	p, err := plan.Read(filepath.Join(v.dir, workspace.FilePlan))
	if err != nil {
		v.t.Fatal(err)
	}
	change(p)
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		v.t.Fatal(err)
	}
	v.write(workspace.FilePlan, append(data, '\n'))
	hash, err := models.PlanHash(p)
	if err != nil {
		v.t.Fatal(err)
	}
	return hash
}

// swapGolden replaces the golden file in the model's folder, and its hash in the journal.
func (v *victim) swapGolden(data []byte) {
	v.t.Helper()
	if err := os.WriteFile(filepath.Join(v.model, "golden.safetensors"), data, 0o644); err != nil {
		v.t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	rewrite(v, journal.KindDeployment, func(s *journal.Subject) { s.GoldenSum = hex.EncodeToString(sum[:]) })
}

// claimTimes multiplies the first token's time of the plan before by first, and all times by all.
// The figures agree with their comparison.
func claimTimes(m *Measurement, first, all float64) {
	if all != 1 {
		m.TTFT, m.TokensPerSec = m.TTFT*all, m.TokensPerSec/all
		first = all
	}
	p := m.Paired
	if p == nil {
		return
	}
	p.First.Before, p.First.After = p.First.Before*first, p.First.After*all
	p.Token.Before, p.Token.After = p.Token.Before*all, p.Token.After*all
	p.First.Gain, p.Token.Gain = 1-p.First.After/p.First.Before, 1-p.Token.After/p.Token.Before
}

// wrongLayer makes a plan read a norm of layer 0 in layer 1.
func wrongLayer(t *testing.T) func(p *plan.Plan) {
	return func(p *plan.Plan) {
		for _, pass := range p.Passes() {
			var first *npu.Layout
			for _, s := range pass.Steps {
				for i, b := range s.Args {
					if b.Const == nil || !strings.Contains(b.Const.String(), "post_attention_layernorm") {
						continue
					}
					if first == nil {
						first = b.Const
					} else {
						s.Args[i].Const = first
					}
				}
			}
			if first == nil {
				t.Fatal("the plan has no norm after attention")
			}
		}
	}
}

// spoilFile flips bits near the end of a file, in weights or logits.
func spoilFile(t *testing.T, path string, from, n int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		data[len(data)-from+i] ^= 0x41
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// An attack on the workspace, in one place or in all, does not get an accepted plan, and the report
// names the damage.
func TestAttacks(t *testing.T) {
	t.Parallel()
	fresh := deployed(t)
	weights := func(v *victim) string {
		list, err := fs.Glob(os.DirFS(v.model), "model*.safetensors")
		if err != nil || len(list) == 0 {
			v.t.Fatalf("no weights: %v", err)
		}
		return filepath.Join(v.model, list[0])
	}
	for name, tc := range map[string]struct {
		attack func(v *victim)
		device func(dev npu.Device) npu.Device
		caught string // a check that must not hold
	}{
		"a threshold is loosened": {attack: func(v *victim) {
			v.replace(workspace.FileThresholds, `"pearson": 0.99`, `"pearson": 0.90`)
		}, caught: "thresholds file"},
		"thresholds have a gain before the right one": {attack: func(v *victim) {
			v.replace(workspace.FileThresholds, `{`, `{"gain": 0.5,`)
		}, caught: "thresholds file"},
		"thresholds have something behind them": {attack: func(v *victim) {
			v.write(workspace.FileThresholds, append(v.read(workspace.FileThresholds), "} more"...))
		}, caught: "thresholds file"},
		"thresholds are gone": {attack: func(v *victim) { os.Remove(filepath.Join(v.dir, workspace.FileThresholds)) },
			caught: "thresholds file"},
		"thresholds have a field more": {attack: func(v *victim) {
			v.replace(workspace.FileThresholds, `"gain"`, `"ignore": true, "gain"`)
		}, caught: "thresholds file"},
		"the plan is swapped behind phase 5": {attack: func(v *victim) { v.swapPlan(wrongLayer(v.t)) }, caught: "plan"},
		"a swapped plan computes wrongly": {attack: func(v *victim) { v.swapPlan(wrongLayer(v.t)) },
			caught: "gate paper"},
		"the plan is another right one": {attack: func(v *victim) { v.swapPlan(func(p *plan.Plan) { p.Chunk-- }) },
			caught: "plan"},
		"the plan is half a file": {attack: func(v *victim) {
			v.write(workspace.FilePlan, v.read(workspace.FilePlan)[:100])
		}, caught: "plan"},
		"the plan is accepted by hand": {attack: func(v *victim) {
			v.replace(workspace.FilePlan, `"draft"`, `"accepted"`)
		}, caught: "status"},
		"a record is changed": {attack: func(v *victim) {
			v.replace(journal.FileJournal, `"kind":"measure"`, `"kind":"measurE"`)
		}, caught: "journal"},
		"a gate's result is changed": {attack: func(v *victim) {
			v.replace(journal.FileJournal, `"ok":true`,
				`"ok":false`)
		}, caught: "journal"},
		"the journal is cut in a line": {attack: func(v *victim) {
			data := v.read(journal.FileJournal)
			v.write(journal.FileJournal, data[:len(data)-10])
		}, caught: "journal"},
		"the journal is cut behind a phase": {attack: func(v *victim) {
			v.write(journal.FileJournal, bytes.Join(v.lines()[:len(v.lines())/2], nil))
		}, caught: "phases"},
		"the last record is cut": {attack: func(v *victim) {
			lines := v.lines()
			v.write(journal.FileJournal, bytes.Join(lines[:len(lines)-1], nil))
		}, caught: "pages"},
		"records are reordered": {attack: func(v *victim) {
			lines := v.lines()
			lines[4], lines[5] = lines[5], lines[4]
			v.write(journal.FileJournal, bytes.Join(lines, nil))
		}, caught: "journal"},
		"the journal is empty": {attack: func(v *victim) { v.write(journal.FileJournal, nil) }, caught: "journal"},
		"figures are better": {attack: func(v *victim) {
			v.replace(workspace.FilePerformance, `"tokens_per_s": `, `"tokens_per_s": 9`)
		}, caught: "figures file"},
		"figures are gone": {attack: func(v *victim) { os.Remove(filepath.Join(v.dir, workspace.FilePerformance)) },
			caught: "figures file"},
		"weights are replaced": {attack: func(v *victim) { spoilFile(v.t, weights(v), 64, 16) }, caught: "weights"},
		"the golden file is replaced": {attack: func(v *victim) {
			spoilFile(v.t, filepath.Join(v.model, "golden.safetensors"), 64, 1)
		}, caught: "golden"},
		"the progress page is made": {attack: func(v *victim) { v.replace("progress.md", "passed", "Passed") },
			caught: "pages"},

		// Attacks that rewrite everything consistently fail the checks that compute.
		"all rewritten: a plan that computes wrongly": {attack: func(v *victim) {
			hash := v.swapPlan(wrongLayer(v.t))
			was := skilltest.Must(ReadState(v.dir)).Plan
			v.forge(func(r *journal.Record) bool {
				r.Data = json.RawMessage(strings.ReplaceAll(string(r.Data), was, hash))
				return true
			})
			v.consistent()
		}, caught: "gate logits"},
		"all rewritten: looser thresholds": {attack: func(v *victim) {
			set := gates.Thresholds()
			b := set.Formats["cpu-bf16"]
			b.Logits.Rtol *= 10
			set.Formats["cpu-bf16"] = b
			data := skilltest.Must(json.MarshalIndent(set, "", "  "))
			v.write(workspace.FileThresholds, append(data, '\n'))
			sum := skilltest.Must(journal.Hash(set))
			rewrite(v, journal.KindDeployment, func(s *journal.Subject) { s.Thresholds = sum })
		}, caught: "thresholds"},
		"all rewritten: figures that nobody can have": {attack: func(v *victim) {
			rewrite(v, journal.KindMeasure, func(m *Measurement) { claimTimes(m, 1e-3, 1e-3) })
		}, caught: "figures"},
		"all rewritten: figures that nobody can have, of a device that is none": {attack: func(v *victim) {
			rewrite(v, journal.KindMeasure,
				func(m *Measurement) { claimTimes(m, 1e-3, 1e-3); m.Device = "toaster (2 slots)" })
		}, caught: "figures"},
		"all rewritten: a device that is none": {attack: func(v *victim) {
			rewrite(v, journal.KindDeployment, func(s *journal.Subject) { s.Device = "toaster" })
		}, caught: "device"},
		"all rewritten: a gain by a slow first figure": {attack: func(v *victim) {
			first := skilltest.Must(ReadState(v.dir)).Measured[0].Value.Plan
			rewrite(v, journal.KindMeasure, func(m *Measurement) {
				if m.Plan == first {
					m.TTFT *= 1e4
				} else {
					claimTimes(m, 1e4, 1)
				}
			})
		}, caught: "gain"},
		"all rewritten: figures that do not agree with their comparison": {attack: func(v *victim) {
			rewrite(v, journal.KindMeasure, func(m *Measurement) { m.TTFT *= 0.9 })
		}, caught: "figures file"},
		"all rewritten: a gain that does not follow from its times": {attack: func(v *victim) {
			rewrite(v, journal.KindMeasure, func(m *Measurement) {
				if m.Paired != nil {
					m.Paired.Token.Gain = 0.9
				}
			})
		}, caught: "figures file"},
		"all rewritten: a first plan that nobody can make": {attack: func(v *victim) {
			first := skilltest.Must(ReadState(v.dir)).Measured[0].Value.Plan
			rewrite(v, journal.KindMeasure, func(m *Measurement) {
				if m.Plan == first {
					m.Plan = strings.Repeat("0", len(first))
				}
			})
		}, caught: "gain"},
		"all rewritten: a first plan of another recipe": {attack: func(v *victim) {
			rewrite(v, journal.KindPlan, func(n *journal.PlanNote) {
				if n.Hash == skilltest.Must(ReadState(v.dir)).Measured[0].Value.Plan {
					n.Recipe.Chunk = 1
				}
			})
		}, caught: "gain"},
		"all rewritten: a first figure for other prompts": {attack: func(v *victim) {
			first := skilltest.Must(ReadState(v.dir)).Measured[0].Value.Plan
			rewrite(v, journal.KindMeasure, func(m *Measurement) {
				if m.Plan == first {
					m.Positions++
				}
			})
		}, caught: "gain"},
		"all rewritten: predicted figures on a device that is measured": {attack: func(v *victim) {
			rewrite(v, journal.KindMeasure, func(m *Measurement) { m.Predicted, m.Clock = true, "npukit" })
		}, caught: "figures"},
		"all rewritten: a gate's error is smaller": {attack: func(v *victim) {
			rewrite(v, journal.KindGate, func(g *GateResult) {
				if g.Name == journal.GateLogits {
					g.Figures["kl_mean"] /= 10
				}
			})
		}, caught: "result logits"},
		"all rewritten: a phase without its gates": {attack: func(v *victim) {
			v.forge(func(r *journal.Record) bool {
				var g GateResult
				if r.Kind == journal.KindGate && json.Unmarshal(r.Data, &g) == nil && g.Name == journal.GateGreedy {
					return false
				}
				var f journal.Finish
				if r.Kind == journal.KindFinish && json.Unmarshal(r.Data, &f) == nil {
					f.Gates = slices.DeleteFunc(f.Gates,
						func(key string) bool { return strings.HasPrefix(key, journal.GateGreedy+"@") })
					r.Data = skilltest.Must(json.Marshal(f))
				}
				return true
			})
			v.consistent()
		}, caught: "phases"},
		"all rewritten: other weights": {attack: func(v *victim) {
			spoilFile(v.t, weights(v), 4096, 2048)
			d, err := NewDeployment(v.model, skilltest.OpenCPU(v.t), &Options{Dir: v.t.TempDir(), SeqLen: 40})
			if err != nil {
				v.t.Fatal(err)
			}
			defer d.Close()
			sum := d.State().Subject.Weights
			rewrite(v, journal.KindDeployment, func(s *journal.Subject) { s.Weights = sum })
		}, caught: "gate oracle-golden"},
		"all rewritten: the golden file of another model": {attack: func(v *victim) {
			v.swapGolden(skilltest.Must(os.ReadFile(filepath.Join(skilltest.Tiny("llama-tied-rope-scaled"),
				"golden.safetensors"))))
		}, caught: "golden"},
		"all rewritten: a stale golden file": {attack: func(v *victim) {
			data := skilltest.Must(os.ReadFile(filepath.Join(v.model, "golden.safetensors")))
			begin := 8 + int(binary.LittleEndian.Uint64(data))
			fields := map[string]json.RawMessage{}
			skilltest.Must(0, json.Unmarshal(data[8:begin], &fields))
			var of struct {
				Offsets [2]int `json:"data_offsets"`
			}
			skilltest.Must(0, json.Unmarshal(fields["logits"], &of))
			at := of.Offsets
			logits := data[begin+at[0] : begin+at[1]]
			half := slices.Clone(logits[:len(logits)/2])
			copy(logits, logits[len(logits)/2:]) // the rows of other positions
			copy(logits[len(logits)-len(half):], half)
			v.swapGolden(data)
		}, caught: "gate oracle-golden"},
		"all rewritten: accepted": {attack: func(v *victim) {
			v.swapPlan(func(p *plan.Plan) { wrongLayer(v.t)(p); p.Status = plan.Accepted })
		}, caught: "status"},

		// A device that does not compute fails too.
		"a device that answers zeros":           {device: adversary("zeros"), caught: "gate logits"},
		"a device that drops a layer":           {device: adversary("a layer dropped"), caught: "gate logits"},
		"a device that repeats its last answer": {device: adversary("stale"), caught: "gate determinism"},
	} {
		t.Run(name, func(t *testing.T) {
			v := fresh(t)
			if tc.attack != nil {
				tc.attack(v)
			}
			dev := skilltest.OpenCPU(t)
			if tc.device != nil {
				dev = tc.device(dev)
			}
			before := v.read(journal.FileJournal)
			opts := loose()
			opts.written = isWritten(tc.caught) && tc.device == nil // what is computed is not what is tried here
			opts.Model, opts.Golden = v.model, filepath.Join(v.model, "golden.safetensors")
			r, err := Settle(context.Background(), v.dir, lend(dev),
				func(ctx context.Context, dir string) (EvaluationReport, error) {
					return Evaluate(ctx, dir, dev, opts)
				}, opts)
			if err != nil {
				t.Fatal(err)
			}
			if r.OK || !slices.Contains(failing(r), tc.caught) {
				t.Errorf("accepted: %v; what does not hold is %q, want %q among it", r.OK, failing(r), tc.caught)
			}
			if tc.caught != "figures" && tc.caught != "gain" && r.Measured != nil {
				t.Error("a deployment that is refused already was measured: other work on the machine could hide " +
					"the refusal")
			}
			if p, err := plan.Read(filepath.Join(v.dir, workspace.FilePlan)); err == nil && p.Status != plan.Failed {
				t.Errorf("the plan is %q", p.Status)
			}
			if after := v.read(journal.FileJournal); !bytes.HasPrefix(after, before) ||
				slices.Contains(failing(r), "journal") && len(after) > len(before) {
				t.Error("the evidence was changed")
			}
			if s, err := ReadState(v.dir); err == nil && s.PlanStatus() == plan.Accepted {
				t.Error("the journal still has the plan accepted")
			}
			if page := string(v.read(workspace.FileEvaluation)); !strings.Contains(page, "not accepted") {
				t.Errorf("the report: %s", page)
			}
		})
	}
}

// adversary returns a wrong device.
func adversary(name string) func(dev npu.Device) npu.Device {
	return func(dev npu.Device) npu.Device {
		for _, a := range gatetest.Adversaries() {
			if a.Name == name {
				return a.Wrap(dev, nil)
			}
		}
		panic("no adversary " + name)
	}
}

// Settle refuses a workspace that another process works on, and changes nothing. Evaluate alone,
// which a running deployment calls, judges it.
func TestSettleLocked(t *testing.T) {
	path, dev, opts, ctx := skilltest.Tiny("smollm-mha"), skilltest.OpenCPU(t), small(t), context.Background()
	d := deployment(t, path, dev, opts)
	asked := func(context.Context, string) (EvaluationReport, error) {
		t.Error("evaluated")
		return EvaluationReport{}, nil
	}
	before := skilltest.Must(os.ReadFile(filepath.Join(opts.Dir, journal.FileJournal)))
	if _, err := Settle(ctx, opts.Dir, lend(dev), asked, nil); !errors.Is(err, ErrLocked) {
		t.Errorf("while a deployment has it: %v", err)
	}
	if after := skilltest.Must(os.ReadFile(filepath.Join(opts.Dir, journal.FileJournal))); !bytes.Equal(before, after) {
		t.Error("the journal has changed")
	}
	if r, err := Evaluate(ctx, opts.Dir, dev, loose()); err != nil || r.OK {
		t.Errorf("the evaluator alone: %v, %v", r.OK, err)
	}
	skilltest.Must(0, d.Close())
	locked := func(ctx context.Context, dir string) (EvaluationReport, error) {
		if _, err := NewDeployment(path, dev, opts); !errors.Is(err, ErrLocked) {
			t.Errorf("a deployment beside an evaluation: %v", err)
		}
		return EvaluationReport{}, ErrBusy
	}
	for range 2 { // the lock is given up
		if _, err := Settle(ctx, opts.Dir, lend(dev), locked, nil); !errors.Is(err, ErrBusy) {
			t.Errorf("when nobody has it: %v", err)
		}
	}
}

// A folder without a workspace is an error and no verdict.
func TestEvaluateNothing(t *testing.T) {
	if _, err := Evaluate(context.Background(), t.TempDir(), skilltest.OpenCPU(t), nil); !errors.Is(err,
		os.ErrNotExist) {
		t.Errorf("want that there is no journal, got %v", err)
	}
}
