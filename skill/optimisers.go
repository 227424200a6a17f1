package skill

import (
	"context"
	"slices"

	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu/dtype"
)

// The three optimisation skills of the paper. Each proposes some of the ten steps.
type (
	mergeKernels struct{}
	reuseBuffers struct{}
	alignLayouts struct{}
)

func (mergeKernels) Name() string { return "opt-merge-multi-launch-kernels" }
func (reuseBuffers) Name() string { return "opt-buffer-object-reuse" }
func (alignLayouts) Name() string { return "opt-layout-alignment" }

func (mergeKernels) Trigger(Symptom) bool { return false }
func (reuseBuffers) Trigger(Symptom) bool { return false }
func (alignLayouts) Trigger(Symptom) bool { return false }

// Changes returns the two merges: launches that share a dispatch pay for one.
func (mergeKernels) Changes(e *Env) []Change {
	return knobSteps(e, "kernels after attention merged", "kernels before attention merged")
}

// Changes returns the steps that keep contexts, buffers and their content between calls.
func (reuseBuffers) Changes(e *Env) []Change {
	return knobSteps(e, "context reused across calls", "buffer objects of each layer, zero copy",
		"transfers of weights and intermediates skipped")
}

// Changes returns the step in which kernels write the layout that the next one reads, without the
// host.
func (alignLayouts) Changes(e *Env) []Change { return knobSteps(e, "layouts without host transposes") }

func (s mergeKernels) Run(ctx context.Context, e *Env) (Outcome, error) {
	return proposeAll(ctx, e, s)
}
func (s reuseBuffers) Run(ctx context.Context, e *Env) (Outcome, error) {
	return proposeAll(ctx, e, s)
}
func (s alignLayouts) Run(ctx context.Context, e *Env) (Outcome, error) {
	return proposeAll(ctx, e, s)
}

// proposeAll proposes the changes of an optimiser.
func proposeAll(ctx context.Context, e *Env, o Optimiser) (Outcome, error) {
	var out Outcome
	for _, c := range o.Changes(e) {
		a, err := e.Propose(ctx, c)
		if err != nil {
			return out, err
		}
		out.Fixed = out.Fixed || a.Outcome == Kept
	}
	return out, nil
}

// knobSteps returns steps of the paper's trajectory by name, for the phase's half of the plan. It
// returns none outside the optimisation phases, and none for a device without an array.
func knobSteps(e *Env, names ...string) []Change {
	var list []Change
	if e.bench.Models.Info.Array == "" || e.Phase != Prefill && e.Phase != Decode {
		return nil
	}
	for i, s := range plan.KnobSteps() {
		if !slices.Contains(names, s.Name) {
			continue
		}
		take := func(r *Recipe) { s.Take(r.Prefill) }
		if e.Phase == Decode {
			take = func(r *Recipe) { takeInDecode(s, r) }
		}
		list = append(list, Change{Name: s.Name, Take: take, Order: i + 1, Published: true})
	}
	return list
}

// takeInDecode takes a step in the decode half. Both halves share the runtime's knobs, which are
// those of prefill.
func takeInDecode(s plan.KnobStep, r *Recipe) {
	s.Take(r.Decode)
	mine, both := r.Decode.Runtime, &r.Prefill.Runtime
	both.ContextReuse, both.BufferReuse = both.ContextReuse || mine.ContextReuse, both.BufferReuse || mine.BufferReuse
	both.SkipTransfers = both.SkipTransfers || mine.SkipTransfers
	r.Decode.Runtime = plan.Runtime{}
}

// hostChanges returns the changes of a plan for a device that takes any number of rows.
func hostChanges(p Phase, seqLen int) []Change {
	if p == Decode {
		return []Change{
			{Name: "KV cache of FP16", Take: func(r *Recipe) { r.Cache = dtype.F16 }, Order: 1},
			{Name: "KV cache of FP32", Take: func(r *Recipe) { r.Cache = dtype.F32 }, Order: 2},
		}
	}
	var list []Change
	for i, c := range []struct {
		rows int
		name string
	}{{128, "chunks of 128 rows"}, {512, "chunks of 512 rows"}, {2048, "chunks of 2048 rows"}} {
		if c.rows/4 < seqLen { // chunks that are longer than any prompt change nothing
			list = append(list, Change{Name: c.name, Take: func(r *Recipe) { r.Chunk = min(c.rows, seqLen) },
				Order: i + 1})
		}
	}
	return list
}
