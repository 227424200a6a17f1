package defect

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/npukit/npukit/internal/fault"
	"github.com/npukit/npukit/npu"
)

// Defect is one bug in one kernel. Its fields are for tests that judge a diagnosis.
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
	rewrite func(s *fault.Step) // runs another launch than the program's
	replace func(k *Kernel)     // computes the launch instead of the device
	damage  func(k *Kernel)     // changes the output of the device
}

// Model has the properties of a model that decide whether a bug shows in it.
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

// Wrap returns a device that computes with dev and loads programs with the defect of the context,
// if [With] has put one into it.
func Wrap(dev npu.Device) npu.Device {
	return fault.Wrap(dev, func(ctx context.Context) *fault.Faults {
		if d := From(ctx); d != nil {
			return &fault.Faults{Find: d.find, May: d.may}
		}
		return nil
	})
}

// may reports whether the defect sits in a launch of some run.
func (d *Defect) may(l npu.Launch) bool {
	return l.Op.Kind() == d.Op && slices.ContainsFunc(d.Launches, func(pattern string) bool {
		end := pattern[strings.LastIndexByte(pattern, '*')+1:]
		return strings.HasSuffix("."+l.Name, end) || strings.HasSuffix(end, "."+l.Name)
	})
}

// find returns the defect as the fault of a launch in which it sits.
func (d *Defect) find(s *fault.Step) fault.Fault {
	if s.Launch.Op.Kind() == d.Op && d.In(s.Name) {
		return d.inject
	}
	return nil
}

// inject runs a launch with the defect.
func (d *Defect) inject(s *fault.Step, run func() error) error {
	if d.rewrite != nil {
		d.rewrite(s)
		s.Reshape()
	}
	compute := d.replace
	if compute == nil {
		if err := run(); err != nil {
			return err
		}
		compute = d.damage
	}
	if compute == nil {
		return nil
	}
	k := newKernel(s)
	if err := k.sync(npu.FromDevice); err != nil {
		return err
	}
	compute(k)
	return k.sync(npu.ToDevice)
}

type key struct{}

// With returns a context under which a device of [Wrap] loads programs with the defect in them.
func With(ctx context.Context, d *Defect) context.Context { return context.WithValue(ctx, key{}, d) }

// From is the defect that With put into ctx, or nil.
func From(ctx context.Context) *Defect {
	d, _ := ctx.Value(key{}).(*Defect)
	return d
}
