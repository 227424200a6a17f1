package models

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/skill/internal/journal"
)

// Plan makes the plan of a recipe. If a rule of the array refuses the plan, the error wraps an
// [*xdna2.ResourceError].
func Plan(r journal.Recipe, ck *checkpoint.Checkpoint, info npu.Info) (*plan.Plan, error) {
	p, err := draftPlan(r, ck, info)
	if err != nil {
		return nil, err
	}
	p.Status = plan.Draft
	return p, nil
}

func draftPlan(r journal.Recipe, ck *checkpoint.Checkpoint, info npu.Info) (*plan.Plan, error) {
	if info.Array == "" {
		return plan.New(ck, info, &plan.Options{SeqLen: r.SeqLen, Chunk: r.Chunk, Activations: r.Activations,
			Cache: r.Cache})
	}
	return ArrayPlan(r, ck.Config())
}

// ArrayPlan makes a plan for an array, which needs no weights.
func ArrayPlan(r journal.Recipe, c *checkpoint.Config) (*plan.Plan, error) {
	if r.Prefill == nil || r.Decode == nil {
		return nil, errors.New("skill: a recipe for an array needs knobs for prefill and for decode")
	}
	make := func(k plan.Knobs) (*plan.Plan, error) {
		k.Runtime = r.Prefill.Runtime
		return plan.NewNPU(c, &plan.NPUOptions{SeqLen: r.SeqLen, Lengths: r.Lengths, Knobs: &k})
	}
	prefill, err := make(*r.Prefill)
	if err != nil {
		return nil, err
	}
	alike := *r.Decode
	alike.Runtime = r.Prefill.Runtime
	if alike == *r.Prefill {
		return prefill, nil
	}
	decode, err := make(*r.Decode)
	if err != nil {
		return nil, err
	}
	return combine(prefill, decode)
}

// combine returns a plan that prefills as one plan and decodes as another plan of the same model.
// Programs and values of decode that have the name of another one of prefill get a new name.
func combine(prefill, decode *plan.Plan) (*plan.Plan, error) {
	p := *prefill
	p.Values, p.Programs = slices.Clone(prefill.Values), slices.Clone(prefill.Programs)
	programs, values := map[string]string{}, map[string]string{} // new names of decode's
	steps := slices.Concat(decode.Decode.Steps, decode.Decode.Head)
	for _, s := range steps {
		if _, known := programs[s.Program]; known {
			continue
		}
		mine := decode.Program(s.Program)
		name, found, err := freeName(s.Program, mine, func(name string) any {
			if q := p.Program(name); q != nil {
				return q
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		programs[s.Program] = name
		if !found {
			renamed := *mine
			renamed.Name = name
			p.Programs = append(p.Programs, &renamed)
		}
	}
	for _, v := range decode.Values {
		if !slices.ContainsFunc(steps, func(s plan.Step) bool {
			return slices.ContainsFunc(s.Args, func(b plan.Binding) bool { return b.Value == v.Name })
		}) {
			continue
		}
		name, found, err := freeName(v.Name, v, func(name string) any {
			if i := slices.IndexFunc(p.Values, func(w plan.Value) bool { return w.Name == name }); i >= 0 {
				return p.Values[i]
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		values[v.Name] = name
		if !found {
			v.Name = name
			p.Values = append(p.Values, v)
		}
	}
	rename := func(list []plan.Step) []plan.Step {
		list = slices.Clone(list)
		for i := range list {
			list[i].Program = programs[list[i].Program]
			list[i].Args = slices.Clone(list[i].Args)
			for j, b := range list[i].Args {
				if b.Value != "" {
					list[i].Args[j].Value = values[b.Value]
				}
			}
		}
		return list
	}
	p.Decode = decode.Decode
	p.Decode.Steps, p.Decode.Head = rename(decode.Decode.Steps), rename(decode.Decode.Head)
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("skill: prefill and decode of different knobs in one plan: %w: this is a bug of npukit",
			err)
	}
	return &p, nil
}

// freeName returns the name for an object of decode in the combined plan: its own, if no object or
// an equal one has it.
func freeName(name string, mine any, there func(string) any) (free string, found bool, err error) {
	want, err := json.Marshal(mine)
	if err != nil {
		return "", false, err
	}
	for free = name; ; free += ".decode" {
		other := there(free)
		if other == nil {
			return free, false, nil
		}
		have, err := json.Marshal(other)
		if err != nil {
			return "", false, err
		}
		if free == name && string(have) == string(want) {
			return free, true, nil
		}
	}
}

// PlanHash returns the SHA-256 of a plan without its status.
func PlanHash(p *plan.Plan) (string, error) {
	q := *p
	q.Status = ""
	return journal.Hash(&q)
}
