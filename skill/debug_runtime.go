package skill

import (
	"context"
	"errors"
	"fmt"

	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/skill/internal/gates"
	"github.com/npukit/npukit/skill/internal/journal"
)

// runtimeFailure knows hangs and lost devices. Attention has its own hypothesis, since on the array
// it is the kernel that hangs most.
type runtimeFailure struct{}

func (runtimeFailure) Name() string           { return "debug-runtime-failure" }
func (runtimeFailure) Trigger(s Symptom) bool { return isDeviceFailure(s.Err) }

func (runtimeFailure) Run(ctx context.Context, e *Env) (Outcome, error) {
	again := func(ctx context.Context, e *Env) (bool, string, error) {
		return true, "the model is loaded again", e.bench.Models.Close()
	}
	o, err := walk(ctx, e, []hypothesis{
		{"no memory: the device cannot hold the plan's buffers", isError(npu.ErrMemory),
			advice("take fewer positions (Options.SeqLen), or close what else uses the device")},
		{"no context: the driver has no hardware context left, not even for one program: other processes have them",
			isError(npu.ErrNoContext),
			advice("stop other processes that use the NPU; programs of the plan take turns, however many they are")},
		{"context lost: the device has dropped its programs, and works again once they are loaded", lost, again},
		{"hang, once: the same run ends when it is repeated", transient, again},
		{"attention hangs: without the fused kernel the model runs", attentionHangs,
			func(_ context.Context, e *Env) (bool, string, error) {
				r := e.Recipe()
				r.Prefill.Attention = plan.OnHost
				return true, "attention of prefill runs on the host", e.SetRecipe(r, "the fused attention kernel hangs")
			}},
	})
	if err == nil && o.Cause == "" {
		o.Directions = []Direction{
			{Name: routingCongestion{}.Name(), What: "take merged programs apart, one after the other"},
			{Name: "kernel-validation", What: "run the kernels alone, to find the one that hangs"},
		}
	}
	return o, err
}

// isError tests the symptom's error.
func isError(want error) func(context.Context, *Env) (bool, string, error) {
	return func(_ context.Context, e *Env) (bool, string, error) {
		if err := e.Symptom.Err; errors.Is(err, want) {
			return true, err.Error(), nil
		}
		return false, "the error is another one", nil
	}
}

// works loads the model and runs a prompt and a step.
func works(ctx context.Context, e *Env) error {
	if err := e.bench.Models.Close(); err != nil {
		return err
	}
	ids, err := e.bench.IDs(ctx)
	if err != nil {
		return err
	}
	s, err := e.Session(ctx)
	if err != nil {
		return err
	}
	if _, err := gates.LogitsOf(ctx, s, ids[:min(len(ids), gates.PaperPass)]); err != nil {
		return err
	}
	_, err = s.Step(ctx, ids[0])
	return err
}

func lost(ctx context.Context, e *Env) (bool, string, error) {
	if !errors.Is(e.Symptom.Err, npu.ErrDeviceLost) {
		return false, "no context was lost", nil
	}
	if err := works(ctx, e); err != nil {
		return false, fmt.Sprintf("loaded again, it fails too: %v", err), nil
	}
	return true, "loaded again, the model runs", nil
}

func transient(ctx context.Context, e *Env) (bool, string, error) {
	if !errors.Is(e.Symptom.Err, npu.ErrTimeout) {
		return false, "nothing hung", nil
	}
	if err := works(ctx, e); err != nil {
		return false, fmt.Sprintf("repeated, it fails too: %v", err), nil
	}
	return true, "repeated, the run ends", nil
}

func attentionHangs(ctx context.Context, e *Env) (bool, string, error) {
	if e.bench.Recipe.Prefill == nil || e.bench.Recipe.Prefill.Attention == plan.OnHost ||
		!errors.Is(e.Symptom.Err, npu.ErrTimeout) {
		return false, "the plan has no fused attention, or nothing hung", nil
	}
	r := e.Recipe()
	r.Prefill.Attention = plan.OnHost
	err := works(ctx, e.with(r))
	if err != nil {
		return false, fmt.Sprintf("with attention on the host it fails too: %v", err), nil
	}
	if works(ctx, e) == nil {
		return false, "it runs with the fused kernel too, this time", nil
	}
	return true, "with attention on the host the model runs, and with the fused kernel it fails again", nil
}

// routingCongestion knows programs that the array refuses, or that hang, because too many launches
// were merged.
type routingCongestion struct{}

func (routingCongestion) Name() string { return "debug-multi-launch-merge" }

func (routingCongestion) Trigger(s Symptom) bool {
	merged := s.Recipe.Prefill != nil && (s.Recipe.Prefill.MergePre || s.Recipe.Prefill.MergePost ||
		s.Recipe.Decode.MergePre || s.Recipe.Decode.MergePost)
	return isRefusal(s.Err) || merged && errors.Is(s.Err, npu.ErrTimeout)
}

func (routingCongestion) Run(ctx context.Context, e *Env) (Outcome, error) {
	var list []hypothesis
	for _, u := range unmerges() {
		apart := e.Symptom.Recipe.Clone()
		if apart.Prefill == nil || !u.take(&apart) {
			continue
		}
		list = append(list, hypothesis{
			"routing congestion: " + u.what + " is more than the array takes in one dispatch",
			func(ctx context.Context, e *Env) (bool, string, error) {
				if journal.IsKernelGate(e.Symptom.Gate) && isRefusal(e.Symptom.Err) {
					return false, "a kernel is refused that shares its dispatch with no other", nil
				}
				trial := e.with(apart)
				if _, err := trial.Plan(); err != nil {
					return false, fmt.Sprintf("taken apart, it is refused too: %v", err), nil
				}
				if isDeviceFailure(e.Symptom.Err) {
					if err := works(ctx, trial); err != nil {
						return false, fmt.Sprintf("taken apart, it fails too: %v", err), nil
					}
				}
				return true, "taken apart, it is placed and runs", nil
			},
			func(_ context.Context, e *Env) (bool, string, error) {
				if e.tried {
					return false, "the merge is left out", nil
				}
				return true, u.what + " is dispatched in parts",
					e.SetRecipe(apart, u.what+" does not run in one dispatch")
			},
		})
	}
	list = append(list, hypothesis{
		"placement: a kernel of the plan breaks a rule of the array by itself",
		func(_ context.Context, e *Env) (bool, string, error) {
			return isRefusal(e.Symptom.Err), fmt.Sprint(e.Symptom.Err), nil
		},
		advice("follow the rule's advice: another tile, another herd, or padding"),
	})
	return walk(ctx, e, list)
}

// unmerge undoes a merge.
type unmerge struct {
	what string
	take func(r *Recipe) bool // returns false if there is no merge
}

func unmerges() []unmerge {
	off := func(flag *bool) bool {
		was := *flag
		*flag = false
		return was
	}
	return []unmerge{
		{"prefill after attention", func(r *Recipe) bool { return off(&r.Prefill.MergePost) }},
		{"prefill before attention", func(r *Recipe) bool { return off(&r.Prefill.MergePre) }},
		{"decode after attention", func(r *Recipe) bool { return off(&r.Decode.MergePost) }},
		{"decode before attention", func(r *Recipe) bool { return off(&r.Decode.MergePre) }},
	}
}
