package journal

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
)

// Recipe has the options of a plan. The journal keeps recipes and the hashes of their plans, so
// that every plan is made again from its recipe.
type Recipe struct {
	SeqLen int `json:"seq_len"` // positions of a session

	// For devices that take any number of rows.
	Chunk       int        `json:"chunk,omitempty"` // rows of a prompt in one pass
	Activations dtype.Type `json:"activations,omitzero"`
	Cache       dtype.Type `json:"cache,omitzero"`

	// For arrays. The runtime's knobs are those of Prefill.
	Lengths []int       `json:"lengths,omitempty"` // rows of the prefill passes
	Prefill *plan.Knobs `json:"prefill,omitempty"`
	Decode  *plan.Knobs `json:"decode,omitempty"`
}

// Naive returns the recipe that optimisation starts from: on an array, one op per dispatch and
// nothing kept between dispatches; elsewhere, short chunks.
func Naive(info npu.Info, seqLen int) Recipe {
	r := Recipe{SeqLen: seqLen}
	if info.Array == "" {
		r.Chunk = min(NaiveChunk, seqLen)
		return r
	}
	prefill, decode := plan.NaiveKnobs(), plan.NaiveKnobs()
	r.Prefill, r.Decode = &prefill, &decode
	return r
}

// NaiveChunk is so short that the weights are read from memory many times for one prompt.
const NaiveChunk = 32

// Clone returns a copy that shares no knobs with r.
func (r Recipe) Clone() Recipe {
	r.Lengths = slices.Clone(r.Lengths)
	for _, k := range []**plan.Knobs{&r.Prefill, &r.Decode} {
		if *k != nil {
			copied := **k
			*k = &copied
		}
	}
	return r
}

// Describe returns how r differs from the recipe before, for people.
func (r Recipe) Describe(before Recipe) string {
	was, is := before.settings(), r.settings()
	var list []string
	for i, s := range is {
		if i < len(was) && was[i] != s {
			list = append(list, fmt.Sprintf("%s %s -> %s", s.name, cmp.Or(was[i].value, "default"),
				cmp.Or(s.value, "default")))
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
	list := []setting{{"chunk", fmt.Sprint(r.Chunk)}, {"activations", typed(r.Activations)}, {"cache", typed(r.Cache)},
		{"lengths", fmt.Sprint(r.Lengths)}}
	for side, k := range map[string]*plan.Knobs{"prefill": r.Prefill, "decode": r.Decode} {
		if k == nil {
			continue
		}
		list = append(list,
			setting{side + " kernels", k.Kernels}, setting{side + " tiles", k.Tiles},
			setting{side + " herd", k.Herd},
			setting{side + " attention", k.Attention}, setting{side + " layout", k.Layout},
			setting{side + " merge after attention", fmt.Sprint(k.MergePost)},
			setting{side + " merge before attention", fmt.Sprint(k.MergePre)},
			setting{side + " LM head", k.LMHead}, setting{side + " rows of the LM head", k.LMRows},
			setting{side + " final norm", k.FinalNorm})
		if side == "prefill" {
			list = append(list, setting{"context reuse", fmt.Sprint(k.ContextReuse)},
				setting{"buffer reuse", fmt.Sprint(k.BufferReuse)},
				setting{"transfers skipped", fmt.Sprint(k.SkipTransfers)})
		}
	}
	slices.SortFunc(list, func(a, b setting) int { return strings.Compare(a.name, b.name) })
	return list
}

// MaxPatch bounds the text of a patch. A recipe has about 500 bytes.
const MaxPatch = 64 << 10

// With returns the recipe with the fields of a JSON object, such as
// {"prefill": {"merge_post": true}}. It returns an error if the patch changes the number of
// positions or the kind of device.
func (r Recipe) With(patch []byte) (Recipe, error) {
	if len(patch) > MaxPatch {
		return r, fmt.Errorf("skill: a change to a recipe has %d bytes, at most %d are allowed", len(patch), MaxPatch)
	}
	next := r.Clone()
	d := json.NewDecoder(bytes.NewReader(patch))
	d.DisallowUnknownFields()
	if err := d.Decode(&next); err != nil {
		return r, fmt.Errorf("skill: a change to a recipe: %w; want an object such as {\"prefill\": "+
			"{\"merge_post\": true}} or {\"chunk\": 512}", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return r, errors.New("skill: a change to a recipe: trailing data after the JSON object")
	}
	if err := r.Allows(next); err != nil {
		return r, err
	}
	return next, nil
}

// Allows returns an error if next changes the subject of the deployment.
func (r Recipe) Allows(next Recipe) error {
	switch {
	case next.SeqLen != r.SeqLen:
		return fmt.Errorf("skill: a change to a recipe: seq_len is %d in this deployment; another one needs "+
			"another folder", r.SeqLen)
	case (next.Prefill == nil) != (r.Prefill == nil) || (next.Decode == nil) != (r.Decode == nil):
		return errors.New("skill: a change to a recipe: prefill and decode are the knobs of an array, and only " +
			"an array has " +
			"them")
	case next.Prefill != nil && next.Chunk != r.Chunk:
		return errors.New("skill: a change to a recipe: chunk is for devices that take any number of rows; " +
			"an array has " +
			"lengths")
	}
	return nil
}

// ProposalPrefix begins the names of proposed changes. It keeps them apart from the built-in steps,
// which are not tried if an attempt of their name exists.
const ProposalPrefix = "proposed: "
