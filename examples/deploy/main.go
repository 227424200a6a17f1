// Command deploy turns a checkpoint into a verified and tuned plan, as `npukit deploy` does, and adds
// rules of its own.
//
//   - Its own approval after each phase: a deployment that takes too long stops at the checkpoint, and
//     a later run resumes it.
//   - Its own gate: the model must not become worse on a text that matters here. A gate computes what
//     it judges, on the device and with the oracle; nothing else can pass it.
//   - Its own skill: one more change to the plan in prefill optimisation. Like the built-in ones, it is
//     kept only if every gate passes and it is faster beyond noise.
//
// The last phase starts this program again as an evaluator that trusts nothing in the workspace. That is
// what skill.Main is for, and why it gets the gate too.
//
//	go run ./examples/deploy MODEL WORKSPACE
//	npukit run MODEL --plan WORKSPACE/plan.json "Hello"
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"time"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/skill"
)

func main() {
	skill.Main(open, &skill.EvaluateOptions{Gates: gates()})
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: deploy MODEL WORKSPACE")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := deploy(ctx, os.Stdout, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "deploy:", err)
		os.Exit(1)
	}
}

// open opens the device of this program, here and in the evaluator's process.
func open(context.Context, string) (npu.Device, error) { return cpu.Open(nil) }

// patience bounds the time of a deployment's phases.
const patience = 30 * time.Minute

func deploy(ctx context.Context, out io.Writer, model, workspace string) (err error) {
	dev, err := open(ctx, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	worked := 0.0
	d, err := skill.NewDeployment(model, dev, &skill.Options{
		Dir:      workspace,
		Gates:    gates(),
		Skills:   []skill.Skill{longChunks{}},
		Evaluate: skill.InNewProcess("", nil),
		Approve: func(_ context.Context, r skill.PhaseReport) (skill.Decision, error) {
			if _, err := fmt.Fprintf(out, "%s passed in %.1f s\n", r.Phase.Title(), r.Seconds); err != nil {
				return skill.Decision{}, err
			}
			if worked += r.Seconds; worked > patience.Seconds() {
				return skill.Decision{Action: skill.Stop, Note: "it takes too long: somebody should look"}, nil
			}
			return skill.Decision{Action: skill.Approve, Note: "by the script"}, nil
		},
		Observe: func(e skill.Event) {
			if e.What == "attempt" {
				fmt.Fprintf(out, "  %s\n", e.Text) // where it fails, so does the next phase's line
			}
		},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := d.Run(ctx); err != nil {
		return err // a *skill.PhaseError has the gates and what was found; run again to go on
	}
	p, err := d.Performance()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "the plan is %s: first token in %.3g s, %.4g tokens/s\n", d.State().PlanStatus(), p.TTFT,
		p.TokensPerSec)
	return err
}

// gates are this team's own requirements of a model.
func gates() []skill.Gate {
	return []skill.Gate{{Name: "our-text", Phases: []skill.Phase{skill.FullModel, skill.Finalise}, Check: likelihood}}
}

// ourIDs stand for a text that matters here: the ids of a contract, a form, a piece of code. They
// must lie in the model's vocabulary.
func ourIDs(vocab int) []int32 {
	ids := make([]int32, 12)
	for i := range ids {
		ids[i] = int32((7 + 31*i) % vocab)
	}
	return ids
}

// worse is by how much the mean likelihood of a token may fall, in nats. A device in BF16 stays
// within a tenth of it.
const worse = 0.05

// likelihood asks the device and the oracle how likely each next id of the text is.
func likelihood(ctx context.Context, e *skill.Env) (skill.Verdict, error) {
	ids := ourIDs(e.Config.Vocab)
	session, err := e.Session(ctx)
	if err != nil {
		return nil, err
	}
	got, err := meanNLL(ids, func(row func(int, []float32) error) error { return session.Score(ctx, ids, row) })
	if err != nil {
		return nil, err
	}
	want, err := meanNLL(ids, func(row func(int, []float32) error) error {
		return e.Oracle.NewState().Score(ctx, ids,
			row)
	})
	if err != nil {
		return nil, err
	}
	c := skill.Checks{Name: "our-text", Figures: map[string]float64{"nll": got, "nll_oracle": want},
		Bounds: fmt.Sprintf("at most %g nats a token worse than the oracle", worse)}
	c.Hold(got <= want+worse, "nll", "a token of our text costs %.4f nats, by the oracle %.4f", got, want)
	return c, nil
}

// meanNLL is the mean of -log p over the ids behind the first.
func meanNLL(ids []int32, score func(row func(pos int, logits []float32) error) error) (float64, error) {
	sum := 0.0
	err := score(func(pos int, logits []float32) error {
		if pos+1 == len(ids) {
			return nil
		}
		highest, total := math.Inf(-1), 0.0
		for _, v := range logits {
			highest = max(highest, float64(v))
		}
		for _, v := range logits {
			total += math.Exp(float64(v) - highest)
		}
		sum -= float64(logits[ids[pos+1]]) - highest - math.Log(total)
		return nil
	})
	return sum / float64(len(ids)-1), err
}

// longChunks proposes to read a prompt in pieces of 1024 rows. It knows no failures, and Run
// proposes its Changes.
type longChunks struct{}

func (longChunks) Name() string               { return "our-long-chunks" }
func (longChunks) Trigger(skill.Symptom) bool { return false }

func (longChunks) Changes(e *skill.Env) []skill.Change {
	if e.Phase != skill.Prefill || e.Device.Info().Array != "" {
		return nil // programs of an array have fixed rows
	}
	return []skill.Change{{Name: "chunks of 1024 rows", Take: func(r *skill.Recipe) { r.Chunk = min(1024, r.SeqLen) }}}
}

func (s longChunks) Run(ctx context.Context, e *skill.Env) (skill.Outcome, error) {
	var out skill.Outcome
	for _, c := range s.Changes(e) {
		a, err := e.Propose(ctx, c)
		if err != nil {
			return out, err
		}
		out.Fixed = out.Fixed || a.Outcome == skill.Kept
	}
	return out, nil
}
