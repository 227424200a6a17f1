package defect

import (
	"context"
	"path"
)

// Defect is one bug in one kernel. Its fields are for tests that judge what was found.
type Defect struct {
	Name        string   // "rope-interleaved"
	Op          string   // kind of the op that it sits in: "RoPE"; a launch of another kind is left alone
	Description string   // the mistake, as its author would confess it
	Launches    []string // tap names of the launches that it sits in; * stands for any layer: "layer.*.attn.q_rope"

	// First is the tap that is the first to be wrong, as the oracle names it. A cache is written
	// before it can be read back: where First is such a write, the first wrong tap among those that
	// a debug load can read is Seen, otherwise that is First itself.
	First, Seen string

	// Model is the name of a tiny test model on which the bug shows; Applies tells of any other.
	Model   string
	Applies func(Model) bool

	// Precise means that the bug disappears in the rounding of BF16: it is seen where activations
	// are FP32.
	Precise bool

	// One of these is set.
	rewrite func(l *Launch) // lowers another launch than the program's
	replace func(k *Kernel) // computes the launch in the kernel's stead
	damage  func(k *Kernel) // spoils what the kernel has written
}

// Model is what decides whether a bug shows in a model.
type Model struct {
	Layers, Heads, KVHeads, HeadDim, Hidden int
	QKVBias, QKNorm                         bool
}

// In reports whether the defect sits in the launch of that tap name.
func (d *Defect) In(tap string) bool {
	for _, pattern := range d.Launches {
		// The only error is a malformed pattern, and the catalogue's test refuses those.
		if ok, _ := path.Match(pattern, tap); ok {
			return true
		}
	}
	return false
}

// Rewrite turns a launch into the wrong one, where the defect is of that sort.
func (d *Defect) Rewrite(l *Launch) {
	if d.rewrite != nil {
		d.rewrite(l)
	}
}

// Replaces reports whether Compute does the launch's work, so that the device must not.
func (d *Defect) Replaces() bool { return d.replace != nil }

// Computes reports whether Compute has something to do.
func (d *Defect) Computes() bool { return d.replace != nil || d.damage != nil }

// Compute does the wrong work of a launch, or spoils the right one, when everything before the
// launch is complete, and with [Defect.Replaces] false the launch as well.
func (d *Defect) Compute(k *Kernel) {
	if d.replace != nil {
		d.replace(k)
	}
	if d.damage != nil {
		d.damage(k)
	}
}

type key struct{}

// With returns a context under which devices load programs with the defect in them.
func With(ctx context.Context, d *Defect) context.Context { return context.WithValue(ctx, key{}, d) }

// From is the defect that With put into ctx, or nil.
func From(ctx context.Context) *Defect {
	d, _ := ctx.Value(key{}).(*Defect)
	return d
}
