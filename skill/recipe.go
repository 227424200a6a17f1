package skill

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
)

// Recipe is what a plan is made from. The journal keeps recipes and the hashes of their plans: a plan is always made again, and never believed.
type Recipe struct {
	SeqLen int `json:"seq_len"` // positions of a session

	// Of a device that takes any number of rows.
	Chunk       int        `json:"chunk,omitempty"` // rows of a prompt in one pass
	Activations dtype.Type `json:"activations,omitzero"`
	Cache       dtype.Type `json:"cache,omitzero"`

	// Of an array. What the runtime does between dispatches is that of Prefill.
	Lengths []int       `json:"lengths,omitempty"` // rows of the prefill passes
	Prefill *plan.Knobs `json:"prefill,omitempty"`
	Decode  *plan.Knobs `json:"decode,omitempty"`
}

// naiveRecipe is where optimisation starts: on an array one op a dispatch and nothing kept between them, elsewhere short chunks.
func naiveRecipe(info npu.Info, seqLen int) Recipe {
	r := Recipe{SeqLen: seqLen}
	if info.Array == "" {
		r.Chunk = min(naiveChunk, seqLen)
		return r
	}
	prefill, decode := plan.NaiveKnobs(), plan.NaiveKnobs()
	r.Prefill, r.Decode = &prefill, &decode
	return r
}

// naiveChunk is so short that weights are read from memory many times for a prompt of some length, as a first program does that takes rows in small groups.
const naiveChunk = 32

// clone is a copy whose knobs can be turned.
func (r Recipe) clone() Recipe {
	r.Lengths = slices.Clone(r.Lengths)
	for _, k := range []**plan.Knobs{&r.Prefill, &r.Decode} {
		if *k != nil {
			copied := **k
			*k = &copied
		}
	}
	return r
}

// Plan makes the plan. An error that holds an [*xdna2.ResourceError] says which rule of the array refuses it.
func (r Recipe) Plan(ck *checkpoint.Checkpoint, info npu.Info) (*plan.Plan, error) {
	p, err := r.plan(ck, info)
	if err != nil {
		return nil, err
	}
	p.Status = plan.Draft
	return p, nil
}

func (r Recipe) plan(ck *checkpoint.Checkpoint, info npu.Info) (*plan.Plan, error) {
	if info.Array == "" {
		return plan.New(ck, info, &plan.Options{SeqLen: r.SeqLen, Chunk: r.Chunk, Activations: r.Activations, Cache: r.Cache})
	}
	return r.arrayPlan(ck.Config())
}

// arrayPlan is a plan for an array, which needs no weights.
func (r Recipe) arrayPlan(c *checkpoint.Config) (*plan.Plan, error) {
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

// combine is a plan that prefills as one plan does and decodes as another one of the same model. Programs and values of decoding that are called as others of
// prefill are, and are not the same, get another name.
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
		return nil, fmt.Errorf("skill: prefill and decode of different knobs in one plan: %w: this is a bug of npukit", err)
	}
	return &p, nil
}

// freeName is the name under which something of decode's goes into a plan: its own where nothing, or the very same, is there already.
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

// PlanHash is the SHA-256 of a plan, whatever its status.
func PlanHash(p *plan.Plan) (string, error) {
	q := *p
	q.Status = ""
	return hashOf(&q)
}

// Describe says in words how two recipes differ.
func (r Recipe) Describe(before Recipe) string {
	was, is := before.settings(), r.settings()
	var list []string
	for i, s := range is {
		if i < len(was) && was[i] != s {
			list = append(list, fmt.Sprintf("%s %s -> %s", s.name, orNone(was[i].value), orNone(s.value)))
		}
	}
	return strings.Join(list, ", ")
}

type setting struct{ name, value string }

func (r Recipe) settings() []setting {
	typed := func(t dtype.Type) string {
		if t == 0 {
			return ""
		}
		return t.String()
	}
	list := []setting{{"chunk", fmt.Sprint(r.Chunk)}, {"activations", typed(r.Activations)}, {"cache", typed(r.Cache)}, {"lengths", fmt.Sprint(r.Lengths)}}
	for side, k := range map[string]*plan.Knobs{"prefill": r.Prefill, "decode": r.Decode} {
		if k == nil {
			continue
		}
		list = append(list,
			setting{side + " kernels", string(k.Kernels)}, setting{side + " tiles", string(k.Tiles)}, setting{side + " herd", string(k.Herd)},
			setting{side + " attention", string(k.Attention)}, setting{side + " layout", string(k.Layout)},
			setting{side + " merge behind attention", fmt.Sprint(k.MergePost)}, setting{side + " merge before attention", fmt.Sprint(k.MergePre)},
			setting{side + " LM head", string(k.LMHead)}, setting{side + " rows of the LM head", string(k.LMRows)},
			setting{side + " final norm", string(k.FinalNorm)})
		if side == "prefill" {
			list = append(list, setting{"context reuse", fmt.Sprint(k.ContextReuse)}, setting{"buffer reuse", fmt.Sprint(k.BufferReuse)},
				setting{"transfers skipped", fmt.Sprint(k.SkipTransfers)})
		}
	}
	slices.SortFunc(list, func(a, b setting) int { return strings.Compare(a.name, b.name) })
	return list
}

func orNone(s string) string {
	if s == "" {
		return "default"
	}
	return s
}
