package plan

import (
	"fmt"
	"slices"
)

// Knobs are the choices that a plan for the NPU leaves open. Each of them changes what the programs are, how they lie on the array, which
// side computes a step, or what the runtime does between dispatches; the last sort is kept in [Plan.Runtime], for the clock to price.
// Results do not depend on the merges: merged and unmerged forms round at the same places.
//
// The zero value is the plan that one would write first; see [NaiveKnobs], [TunedKnobs] and [KnobSteps] for the way between the two.
type Knobs struct {
	Kernels   KernelKnob    `json:"kernels,omitempty"`   // of element-wise ops and norms
	Tiles     TileKnob      `json:"tiles,omitempty"`     // of every kernel that has some
	Herd      HerdKnob      `json:"herd,omitempty"`      // how much of the array a kernel spans
	Attention AttentionKnob `json:"attention,omitempty"` // of prefill
	Layout    LayoutKnob    `json:"layout,omitempty"`    // of what attention reads and writes

	MergePost bool `json:"merge_post,omitempty"` // the launches behind attention share dispatches, as far as the compiler's limits allow
	MergePre  bool `json:"merge_pre,omitempty"`  // the launches before attention share one dispatch

	LMHead    SideKnob `json:"lm_head,omitempty"`    // where the LM head runs
	LMRows    RowsKnob `json:"lm_rows,omitempty"`    // whose logits a prefill computes; the host's LM head always has single rows
	FinalNorm SideKnob `json:"final_norm,omitempty"` // where the last norm runs; "npu" wants the LM head there too

	// DecodeAttention "npu" asks for decode without host steps in the layers. The array has no kernel for attention over a cache, so that
	// it is refused; see [NewNPUPlan].
	DecodeAttention SideKnob `json:"decode_attention,omitempty"`

	Runtime
}

// Runtime is what the runtime does between dispatches. Nothing of it changes a program or a result.
type Runtime struct {
	ContextReuse  bool `json:"context_reuse,omitempty"`  // a program's hardware context stays open from call to call
	BufferReuse   bool `json:"buffer_reuse,omitempty"`   // every layer has its own buffer objects, written where they lie
	SkipTransfers bool `json:"skip_transfers,omitempty"` // weights and intermediates are brought to the device once, not at every dispatch
}

// Values of the knobs. The first of each sort is the zero value.
type (
	KernelKnob    string
	TileKnob      string
	HerdKnob      string
	AttentionKnob string
	LayoutKnob    string
	SideKnob      string
	RowsKnob      string
)

const (
	ScalarKernels KernelKnob = ""
	VectorKernels KernelKnob = "vector"

	SmallTiles TileKnob = ""      // one that is legal for most shapes
	ShapeTiles TileKnob = "shape" // chosen for the shape

	PartHerd HerdKnob = ""     // one column for element-wise ops, four for matrix products, one head at a time for attention
	FullHerd HerdKnob = "full" // as many columns as the kernel can feed

	// FusedAttention is one dispatch that keeps scores and sums in the cores. The array has no softmax of its own: attention that is not
	// fused runs on the host.
	FusedAttention AttentionKnob = ""
	HostAttention  AttentionKnob = "host"

	HeadFirst    LayoutKnob = ""          // q, k, v and the result are [heads, rows, headDim]: the host transposes before and after
	ProgramOrder LayoutKnob = "seq-first" // as the neighbouring programs have it, where a kernel for that exists

	OnHostSide SideKnob = ""
	OnNPUSide  SideKnob = "npu"

	AllRows RowsKnob = ""     // a matrix product over the whole prompt
	LastRow RowsKnob = "last" // a vector-matrix product for each row that somebody wants
)

// Validate reports a value that is none of the knob's, and knobs that exclude each other.
func (k *Knobs) Validate() error {
	for _, c := range []struct {
		name, value string
		want        []string
	}{
		{"kernels", string(k.Kernels), []string{string(ScalarKernels), string(VectorKernels)}},
		{"tiles", string(k.Tiles), []string{string(SmallTiles), string(ShapeTiles)}},
		{"herd", string(k.Herd), []string{string(PartHerd), string(FullHerd)}},
		{"attention", string(k.Attention), []string{string(FusedAttention), string(HostAttention)}},
		{"layout", string(k.Layout), []string{string(HeadFirst), string(ProgramOrder)}},
		{"lm_head", string(k.LMHead), []string{string(OnHostSide), string(OnNPUSide)}},
		{"lm_rows", string(k.LMRows), []string{string(AllRows), string(LastRow)}},
		{"final_norm", string(k.FinalNorm), []string{string(OnHostSide), string(OnNPUSide)}},
		{"decode_attention", string(k.DecodeAttention), []string{string(OnHostSide), string(OnNPUSide)}},
	} {
		if !slices.Contains(c.want, c.value) {
			return fmt.Errorf("knob %s is %q, want one of %q", c.name, c.value, c.want)
		}
	}
	if k.FinalNorm == OnNPUSide && (k.LMHead != OnNPUSide || k.LMRows != LastRow) {
		return fmt.Errorf("knob final_norm is %q: it feeds an LM head for single rows on the NPU only", k.FinalNorm)
	}
	return nil
}

// NaiveKnobs are those of a plan that dispatches every op by itself.
func NaiveKnobs() Knobs { return Knobs{LMHead: OnNPUSide} }

// TunedKnobs are those of the published artefacts: all ten steps taken.
func TunedKnobs() Knobs {
	k := NaiveKnobs()
	for _, s := range KnobSteps() {
		s.Take(&k)
	}
	return k
}

// KnobStep is a step of an optimisation trajectory.
type KnobStep struct {
	Name string
	Take func(*Knobs)
}

// KnobSteps are the ten steps on which Llama-3.2-1B was brought from one op a dispatch to its published speed, in their order. Attention
// is one dispatch on the array from the start, so that a naive layer has as many dispatches as it has ops; the fourth step gives its
// kernel the tiles of the shape, and [HostAttention] is there to see what fusing it is worth.
//
// Source: Li et al., arXiv 2606.07586.
func KnobSteps() []KnobStep {
	return []KnobStep{
		{"vectorised kernels", func(k *Knobs) { k.Kernels = VectorKernels }},
		{"context reused across calls", func(k *Knobs) { k.ContextReuse = true }},
		{"buffer objects of each layer, zero copy", func(k *Knobs) { k.BufferReuse = true }},
		{"tiles for the shape, fused attention", func(k *Knobs) { k.Tiles, k.Attention = ShapeTiles, FusedAttention }},
		{"kernels behind attention merged", func(k *Knobs) { k.MergePost = true }},
		{"kernels before attention merged", func(k *Knobs) { k.MergePre = true }},
		{"transfers of weights and intermediates skipped", func(k *Knobs) { k.SkipTransfers = true }},
		{"more of the array used", func(k *Knobs) { k.Herd = FullHerd }},
		{"layouts without host transposes", func(k *Knobs) { k.Layout = ProgramOrder }},
		{"LM head of the last row only", func(k *Knobs) { k.LMRows = LastRow }},
	}
}
