package skill

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/oracle"
)

// Positions that a block is looked at over: so many in one pass, as a prompt, and so many one by one, as in decoding. The first number is no multiple of any tile.
const (
	blockPass  = 40
	blockSteps = 8
)

// blockOutput is the tap of layer 0's output, for the oracle and for every plan.
const blockOutput = "layer.0.ffn.residual"

// recording is what a tapped run of the plan has shown.
type recording struct {
	plan   string // its hash
	ids    []int32
	trace  gate.Trace
	output []float32 // of layer 0 [positions, hidden]
}

// record runs a few ids with all outputs seen, and compares op by op.
func (e *Env) record(ctx context.Context) (*recording, []int32, error) {
	hash, err := e.planHash()
	if err != nil {
		return nil, nil, err
	}
	if r := e.d.recorded; r != nil && r.plan == hash {
		return r, r.ids, nil
	}
	ids, err := e.ids(ctx)
	if err != nil {
		return nil, nil, err
	}
	p, err := e.Plan()
	if err != nil {
		return nil, nil, err
	}
	ids = ids[:min(len(ids), blockPass+blockSteps)]
	format := formatOf(p, e.d.info, e.Config().DType)
	noise, ok := gate.FormatNoise(format)
	if !ok {
		return nil, nil, fmt.Errorf("skill: it is not known how much error the number format %s explains", format)
	}
	rec := &gate.Recording{Noise: noise}
	out := &recording{plan: hash, ids: ids}
	tap := func(name string, shape []int, values []float32) error {
		if name == blockOutput {
			out.output = append(out.output, values...)
		}
		return rec.Tap(name, shape, values)
	}
	pass := max(1, len(ids)-blockSteps)
	err = e.tappedBy(ctx, unpriced(p), tap, func(s *model.Session) error {
		if err := s.Score(ctx, ids[:pass], func(int, []float32) error { return nil }); err != nil {
			return err
		}
		for _, id := range ids[pass:] {
			if _, err := s.Step(ctx, id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	out.trace, err = rec.Trace(func(tap gate.TapFunc) error {
		return e.d.ref.Forward(ctx, e.d.ref.NewState(), ids, &oracle.ForwardOptions{Tap: tap}, nil)
	})
	if err == nil {
		e.d.recorded = out
	}
	return out, ids, err
}

// unpriced is the plan without its predicted costs: a prompt is then prefilled, and every step decoded. With them a session takes the cheapest way to the next token, and where
// only prefill has been tuned yet that is to prefill all tokens again: steps would show nothing of the decode pass.
func unpriced(p *model.Plan) *model.Plan {
	q := *p
	q.Decode.Cost = 0
	q.Prefill = slices.Clone(p.Prefill)
	for i := range q.Prefill {
		q.Prefill[i].Cost = 0
	}
	return &q
}

// checkBlock judges what layer 0 gives on.
func checkBlock(ctx context.Context, e *Env) (Verdict, error) {
	rec, ids, err := e.record(ctx)
	if err != nil {
		return nil, err
	}
	var want []float32
	err = e.d.ref.Forward(ctx, e.d.ref.NewState(), ids, &oracle.ForwardOptions{Picks: []int{}, Tap: func(name string, _ []int, values []float32) error {
		if name == blockOutput {
			want = slices.Clone(values)
		}
		return nil
	}}, nil)
	if err != nil {
		return nil, err
	}
	if len(rec.output) == 0 {
		return nil, fmt.Errorf("skill: the plan shows no output %s", blockOutput)
	}
	b, err := e.bounds()
	if err != nil {
		return nil, err
	}
	return paperRows("layer 0", rec.output, want, e.Config().Hidden, b.Block)
}

// checkBlockOps judges each op of layer 0 on its own.
func checkBlockOps(ctx context.Context, e *Env) (Verdict, error) {
	rec, _, err := e.record(ctx)
	if err != nil {
		return nil, err
	}
	c := Checks{Name: GateBlockOps}
	t := rec.trace
	t.Taps = slices.DeleteFunc(slices.Clone(t.Taps), func(tap gate.Tap) bool { return tap.Layer > 0 || strings.HasPrefix(tap.Name, "head.") })
	d := gate.Diagnose(t)
	c.Hold(d.Taps > 0 && d.Checked, "taps", "%d outputs were seen, each held to what the oracle makes of the device's own inputs", d.Taps)
	for _, f := range d.Findings {
		c.Hold(false, gate.MeanRelL1, "%s: error %.3g where the format explains %.2g; %s; usual cause: %s", f.Tap, f.Error, f.Explains, strings.Join(f.Where, "; "), f.Cause)
	}
	return c, nil
}
