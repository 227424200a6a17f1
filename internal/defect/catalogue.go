package defect

import "slices"

// The tiny models of the tests, by the folder that holds each.
const (
	llama  = "llama-tied-rope-scaled" // 4 heads over 2
	sharer = "llama-untied-sharded"   // 6 heads over 3
	smol   = "smollm-mha"             // 4 heads of their own
	qwen2  = "qwen2-bias"             // 7 heads over 1
	qwen3  = "qwen3-qknorm"           // 4 heads over 2, q and k normalised
)

// All is the catalogue, in the order in which a forward pass comes to the ops. The defects are the
// caller's own.
func All() []*Defect {
	list := slices.Concat(gathers(), norms(), products(), rotations(), caches(), attentions(), pointwise())
	for _, d := range list {
		if d.Seen == "" {
			d.Seen = d.First
		}
		if d.Applies == nil {
			d.Applies = func(Model) bool { return true }
		}
	}
	return list
}

// deep reports whether a model has a second layer.
func deep(m Model) bool { return m.Layers > 1 }

// grouped reports whether several query heads share a key-value head, and there are several of
// these.
func grouped(m Model) bool { return m.KVHeads > 1 && m.Heads > m.KVHeads }

// square reports whether the output projection is as high as it is wide.
func square(m Model) bool { return m.Heads*m.HeadDim == m.Hidden }

func normed(m Model) bool { return m.QKNorm }

func biased(m Model) bool { return m.QKVBias }
