package plan

import "fmt"

// Knobs are the choices that the NPU planner leaves open. Each one changes the programs, how they map
// to the array, which side runs a step, or how the runtime works between dispatches; the last kind
// is kept in [Plan.Runtime], for the clock to price. Merging launches does not change results: merged
// and unmerged forms round at the same places.
//
// A string field is empty or has one of the values in its comment, which JSON uses as well. The zero
// value of Knobs is the simplest plan with the LM head on the host. [KnobSteps] leads from
// [NaiveKnobs] to [TunedKnobs], the published plan, which has the second value of every string field
// except Attention, FinalNorm and DecodeAttention.
type Knobs struct {
	// Kernels selects the kernels of element-wise ops and norms: scalar, or "vector".
	Kernels string `json:"kernels,omitempty"`
	// Tiles selects the tile sizes of all kernels: sizes that are legal for most shapes, or "shape",
	// chosen for the shape.
	Tiles string `json:"tiles,omitempty"`
	// Herd selects how much of the array a kernel spans: one column for element-wise ops, four for
	// matrix products and one head at a time for attention, or "full", as many columns as the kernel
	// can feed.
	Herd string `json:"herd,omitempty"`
	// Attention selects the attention of prefill: fused, one dispatch that keeps scores and sums in
	// the cores, or [OnHost]. The array has no softmax kernel for attention that is not fused.
	Attention string `json:"attention,omitempty"`
	// Layout is the layout of q, k, v and the attention output: [heads, rows, headDim], which the
	// host transposes before and after, or "seq-first", as the neighboring programs have it. The
	// latter applies where a kernel for it exists.
	Layout string `json:"layout,omitempty"`

	// MergePost merges the launches after attention into as few dispatches as the compiler's limits
	// allow.
	MergePost bool `json:"merge_post,omitempty"`
	// MergePre merges the launches before attention into one dispatch.
	MergePre bool `json:"merge_pre,omitempty"`

	// LMHead is where the LM head runs: the host, or [OnDevice].
	LMHead string `json:"lm_head,omitempty"`
	// LMRows selects the rows whose logits a prefill computes: all of the prompt, in a matrix product,
	// or "last", in a GEMV for each row that is asked for. On the host it is always the latter.
	LMRows string `json:"lm_rows,omitempty"`
	// FinalNorm is where the last norm runs: the host, or [OnDevice], which requires LMHead on the
	// device and LMRows "last".
	FinalNorm string `json:"final_norm,omitempty"`

	// DecodeAttention [OnDevice] asks for decode without host steps in the layers. The array has no
	// kernel for attention over a cache, so [NewNPU] refuses it.
	DecodeAttention string `json:"decode_attention,omitempty"`

	Runtime
}

// Runtime has the knobs of the runtime between dispatches. It changes no program and no result.
type Runtime struct {
	// ContextReuse keeps a program's hardware context open from call to call.
	ContextReuse bool `json:"context_reuse,omitempty"`
	// BufferReuse gives each layer its own buffer objects, which are written in place.
	BufferReuse bool `json:"buffer_reuse,omitempty"`
	// SkipTransfers copies weights and intermediates to the device once, not for each dispatch.
	SkipTransfers bool `json:"skip_transfers,omitempty"`
}

// Values of the string fields of [Knobs], next to "", OnHost and OnDevice.
const (
	vectorKernels = "vector"
	shapeTiles    = "shape"
	fullHerd      = "full"
	seqFirst      = "seq-first"
	lastRow       = "last"
)

// validate returns an error if a field has a value that it cannot have, or if knobs exclude each other.
func (k *Knobs) validate() error {
	for _, c := range []struct{ name, value, want string }{
		{"kernels", k.Kernels, vectorKernels},
		{"tiles", k.Tiles, shapeTiles},
		{"herd", k.Herd, fullHerd},
		{"attention", k.Attention, OnHost},
		{"layout", k.Layout, seqFirst},
		{"lm_head", k.LMHead, OnDevice},
		{"lm_rows", k.LMRows, lastRow},
		{"final_norm", k.FinalNorm, OnDevice},
		{"decode_attention", k.DecodeAttention, OnDevice},
	} {
		if c.value != "" && c.value != c.want {
			return fmt.Errorf("knob %s is %q, want %q or %q", c.name, c.value, "", c.want)
		}
	}
	if k.FinalNorm == OnDevice && (k.LMHead != OnDevice || k.LMRows != lastRow) {
		return fmt.Errorf("knob final_norm is %q: it requires lm_head %q and lm_rows %q",
			k.FinalNorm, OnDevice, lastRow)
	}
	return nil
}

// NaiveKnobs returns the knobs of a plan that dispatches every op by itself.
func NaiveKnobs() Knobs { return Knobs{LMHead: OnDevice} }

// TunedKnobs returns the knobs of the published artifacts: NaiveKnobs after all of KnobSteps.
func TunedKnobs() Knobs {
	k := NaiveKnobs()
	for _, s := range KnobSteps() {
		s.Take(&k)
	}
	return k
}

// KnobStep is one step of an optimization trajectory.
type KnobStep struct {
	Name string
	Take func(*Knobs)
}

// KnobSteps returns the ten steps, in order, that took Llama-3.2-1B from one op per dispatch to its
// published speed. Attention is one dispatch on the array from the start, so a naive layer has as
// many dispatches as ops. The fourth step tiles its kernel for the shape; to measure the gain of
// fused attention, set Attention to [OnHost].
//
// Source: Li et al., arXiv 2606.07586.
func KnobSteps() []KnobStep {
	return []KnobStep{
		{"vectorised kernels", func(k *Knobs) { k.Kernels = vectorKernels }},
		{"context reused across calls", func(k *Knobs) { k.ContextReuse = true }},
		{"buffer objects of each layer, zero copy", func(k *Knobs) { k.BufferReuse = true }},
		{"tiles for the shape, fused attention", func(k *Knobs) { k.Tiles, k.Attention = shapeTiles, "" }},
		{"kernels after attention merged", func(k *Knobs) { k.MergePost = true }},
		{"kernels before attention merged", func(k *Knobs) { k.MergePre = true }},
		{"transfers of weights and intermediates skipped", func(k *Knobs) { k.SkipTransfers = true }},
		{"more of the array used", func(k *Knobs) { k.Herd = fullHerd }},
		{"layouts without host transposes", func(k *Knobs) { k.Layout = seqFirst }},
		{"LM head of the last row only", func(k *Knobs) { k.LMRows = lastRow }},
	}
}
