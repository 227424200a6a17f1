package skill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/sim"
	"github.com/npukit/npukit/skill/internal/gates"
	"github.com/npukit/npukit/skill/internal/journal"
)

// bufferCorruption knows kernels that are right alone and wrong in the model: the difference is the
// memory that they read. Source of the hypotheses: Xilinx/mlir-air e972f2942, skill
// debug-bo-corruption.
type bufferCorruption struct{}

func (bufferCorruption) Name() string { return "debug-bo-corruption" }

// Trigger is on gates of the model: the kernels alone have passed before.
func (bufferCorruption) Trigger(s Symptom) bool {
	switch s.Gate {
	case journal.GateBlock, journal.GateBlockOps, journal.GateLogits, journal.GatePaper, journal.GateGreedy,
		journal.GateDeterminism, journal.GateGolden:
		return true
	}
	return isCoherency(s.Err)
}

func (bufferCorruption) Run(ctx context.Context, e *Env) (Outcome, error) {
	o, err := walk(ctx, e, []hypothesis{
		{"missing sync: host and device disagree about a buffer", namedSync,
			advice("sync the argument that the evidence names, in the direction that it names")},
		{
			"wrong layer key: the plan binds one layer's weights or cache in another layer", planKeys,
			advice("make the plan again from its recipe; if it was edited, give each layer's step its own " +
				"layer's tensors"),
		},
		{
			"weights not written: an op reads a constant that is zeros on the device", zeroConstants,
			advice("write constants once before the first dispatch, and sync them; a device that makes Const " +
				"lazily must do so before Submit"),
		},
		{
			"other weights: the device does not hold what the checkpoint has", otherWeights,
			advice("look at how the device makes the constant that the evidence names: its layout, its " +
				"transfer, its memory"),
		},
		{
			"stale buffer: a run sees what the run before has left", staleBuffer,
			advice("sync inputs to the device before every dispatch that reads them, and do not mark as static " +
				"what changes between calls"),
		},
		{
			"missing sync or shared buffer: every op is right once its output is read back", hiddenByTaps,
			advice("find the buffer that two launches share: the op by op run syncs after each, and the merged run " +
				"does not; on the virtual array open it with Debug, which " +
				"names the argument"),
		},
		{
			"kernel: an op is wrong on its own although it passed on random data", wrongOp,
			advice("look at the op's own page under kernels/, and at the layout of what it reads: head-first and " +
				"seq-first have the same size"),
		},
	})
	if err == nil && o.Cause == "" {
		o.Directions = []Direction{{Name: "kernel-validation", What: "validate the kernels again, on this plan"}}
	}
	return o, err
}

// planKeys looks for a step of a layer that is bound to another layer's tensors or cache.
func planKeys(_ context.Context, e *Env) (bool, string, error) {
	p, err := e.Plan()
	if err != nil {
		return false, "", err
	}
	for _, pass := range p.Passes() {
		for _, s := range slices.Concat(pass.Steps, pass.Head) {
			layer, ok := strings.CutPrefix(s.Name, "layer.")
			if !ok {
				continue
			}
			for i, b := range s.Args {
				arg := p.Program(s.Program).Args[i].Name
				if b.Const != nil {
					for _, part := range strings.Split(b.Const.String(), "model.layers.")[1:] {
						if other, _, _ := strings.Cut(part, "."); other != layer {
							return true, fmt.Sprintf("step %s, argument %q is bound to %s", s.Name, arg, b.Const), nil
						}
					}
				}
				if _, other, _ := strings.Cut(b.State, "."); b.State != "" && other != layer {
					return true, fmt.Sprintf("step %s, argument %q is bound to cache %s", s.Name, arg, b.State), nil
				}
			}
		}
	}
	return false, "every layer's steps name their own layer's tensors and caches", nil
}

// zeroConstants looks for an op with a wrong output that is zero where the reference is not, as if
// its weights were zero.
func zeroConstants(_ context.Context, e *Env) (bool, string, error) {
	d := e.Symptom.Diagnosis
	if d == nil || e.bench.Recorded() == nil {
		return false, "no diagnosis was made", nil
	}
	// Only the first finding counts: later outputs can be zero because their inputs are too large.
	for _, f := range d.Findings[:min(len(d.Findings), 1)] {
		for _, tap := range e.bench.Recorded().Trace.Taps {
			// An output of zeros has a mean relative error of exactly 1 in every row.
			if tap.Name == f.Tap && tap.Own != nil && tap.Own.Metrics.MeanRelL1 > 0.999 &&
				tap.Own.Metrics.MeanRelL1 < 1.001 && tap.Own.Scale < 1e-3 {
				return true, fmt.Sprintf("%s is zero although its inputs are not", f.Tap), nil
			}
		}
	}
	return false, "the first wrong op has an output that is not zeros", nil
}

// otherWeights copies every constant of the plan to the device again, reads it back and compares it
// with the checkpoint. Constants that the device stores in another form cannot be compared.
func otherWeights(ctx context.Context, e *Env) (bool, string, error) {
	p, err := e.Plan()
	if err != nil {
		return false, "", err
	}
	seen, same := map[string]bool{}, 0
	for _, pass := range p.Passes() {
		for _, s := range slices.Concat(pass.Steps, pass.Head) {
			dev := e.bench.Models.Device
			if s.On != plan.OnDevice {
				dev = npu.HostOf(dev)
			}
			for _, b := range s.Args {
				key := fmt.Sprint(s.On, b.Const)
				if b.Const == nil || seen[key] {
					continue
				}
				seen[key] = true
				at, known, err := readBack(ctx, dev, npu.Source{Layout: *b.Const,
					From: ownTensors{e.bench.Models.Checkpoint}})
				switch {
				case err != nil:
					return false, "", err
				case at >= 0:
					return true, fmt.Sprintf("step %s reads %s, which on the device is not the checkpoint's: the "+
						"first byte that differs is %d", s.Name, b.Const, at), nil
				case known:
					same++
				}
			}
		}
	}
	return false, fmt.Sprintf("%d constants, of %d, are on the device as the checkpoint has them; the others "+
		"cannot be compared", same, len(seen)), nil
}

// ownTensors passes the tensors of a checkpoint to a device.
type ownTensors struct{ ck *checkpoint.Checkpoint }

func (o ownTensors) Tensor(name string) (npu.Tensor, error) {
	t, err := o.ck.Tensor(name)
	return npu.Tensor{Type: t.Type, Shape: t.Shape, Data: t.Data}, err
}

// readBack returns the first byte in which a constant on the device differs, or -1. It returns
// false for known if the device stores the constant in another form, or if it is no tensor of the
// checkpoint, such as the table of RoPE.
func readBack(ctx context.Context, dev npu.Device, src npu.Source) (at int, known bool, err error) {
	typ, shape, err := src.Stat()
	if err != nil || dev.Info().Compresses(typ, shape) {
		return -1, false, nil
	}
	b, err := dev.Const(ctx, src)
	if err != nil {
		return -1, false, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	elements := 1
	for _, d := range shape {
		elements *= d
	}
	n := typ.Bytes(elements)
	if n != b.Len() {
		return -1, false, nil
	}
	if err := b.Sync(npu.FromDevice, 0, n); err != nil {
		return -1, false, err
	}
	got, want := b.Bytes(), make([]byte, n)
	if err := src.Materialize(want); err != nil || len(got) != n {
		return -1, false, err
	}
	for i, v := range want {
		if got[i] != v {
			return i, true, nil
		}
	}
	return -1, true, nil
}

// staleBuffer scores a prompt in a new session, and again after another prompt.
func staleBuffer(ctx context.Context, e *Env) (bool, string, error) {
	ids, err := e.bench.IDs(ctx)
	if err != nil {
		return false, "", err
	}
	if err := e.bench.Models.Close(); err != nil {
		return false, "", err
	}
	s, err := e.Session(ctx)
	if err != nil {
		return false, "", err
	}
	a, b := e.bench.Pair(ids)
	r, err := gate.Determinism(ctx, s, a, b)
	if err != nil {
		return false, "", err
	}
	// A device that returns NaN has equal logits for different prompts, which proves nothing.
	nan := slices.ContainsFunc(e.Symptom.Reasons, func(why gate.Reason) bool { return why.Metric == gate.NonFinite })
	i := slices.IndexFunc(r.Reasons, func(why gate.Reason) bool { return why.Metric == gate.Repeats || !nan })
	if i < 0 {
		return false, "two prompts in turn give the same logits again, or logits that are NaN", nil
	}
	return true, r.Reasons[i].Text, nil
}

// hiddenByTaps compares the run whose outputs are all read back with the plain run.
func hiddenByTaps(ctx context.Context, e *Env) (bool, string, error) {
	d := e.Symptom.Diagnosis
	if d == nil || !d.Clean {
		return false, "an op is wrong even when outputs are read back", nil
	}
	ids, err := e.bench.IDs(ctx)
	if err != nil {
		return false, "", err
	}
	ids = ids[:min(len(ids), gates.PaperPass)]
	s, err := e.Session(ctx)
	if err != nil {
		return false, "", err
	}
	plain, err := gates.LogitsOf(ctx, s, ids)
	if err != nil {
		return false, "", err
	}
	var seen []float32
	err = e.bench.Tapped(ctx, func(string, []int, []float32) error { return nil }, func(s *model.Session) (err error) {
		seen, err = gates.LogitsOf(ctx, s, ids)
		return err
	})
	if err != nil {
		return false, "", err
	}
	for i, v := range plain {
		if v != seen[i] {
			return true, fmt.Sprintf("logit %d of position %d is %g, and %g when outputs are read back",
				i%e.Config.Vocab, i/e.Config.Vocab, v, seen[i]), nil
		}
	}
	return false, "the logits are the same when outputs are read back", nil
}

// wrongOp returns the first finding of the diagnosis.
func wrongOp(_ context.Context, e *Env) (bool, string, error) {
	d := e.Symptom.Diagnosis
	if d == nil || d.Clean {
		return false, "no op is wrong on its own", nil
	}
	f := d.Findings[0]
	return true, fmt.Sprintf("%s: %s; usual cause: %s", f.Tap, strings.Join(f.Where, "; "), f.Cause), nil
}

// isCoherency reports whether err is from a device that checks syncs.
func isCoherency(err error) bool {
	var c *sim.CoherencyError
	return errors.As(err, &c)
}

// namedSync tests whether the device itself has named a missing sync.
func namedSync(_ context.Context, e *Env) (bool, string, error) {
	if err := e.Symptom.Err; isCoherency(err) {
		return true, err.Error(), nil
	}
	return false, "the device names no missing sync", nil
}
