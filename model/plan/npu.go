package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/internal/hostvalue"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/npu/xdna2"
)

// NPUOptions are the choices that the NPU planner leaves open. The zero value of a field is its
// default.
type NPUOptions struct {
	SeqLen  int   // positions of a session; default: the model's context, at most DefaultMaxContext
	Lengths []int // rows of the prefill passes; default 2048, or less if the context is shorter

	Knobs    *Knobs          // default TunedKnobs
	Array    *xdna2.Array    // default xdna2.NPU2
	Registry *xdna2.Registry // measured tiles; default xdna2.PublishedRegistry
}

// defaultLength is the sequence length of the published artifacts.
const defaultLength = 2048

// NewNPU plans a model of the given configuration for an XDNA 2 array. It needs no weights: the
// plan states the layouts in which the programs take them, in BF16.
//
// A prefill pass of S rows runs three to seven programs per layer, a decode pass two or five. Rules
// over the configuration decide which launches share a program, the order of its arguments, which
// matrix products have an FP32 scratch argument, and which dimensions are padded. For the nine published models
// they produce the published argument lists. The host looks up embeddings, holds the KV cache,
// computes attention over it in decode, normalizes the last row and joins the parts of the logits.
//
// The plan passes [xdna2.Check]. If the array cannot run the model, the error wraps an
// [*xdna2.ResourceError], which names the rule. All norms use the configuration's epsilon. The
// published artifacts use 1e-5 in all norms of prefill and in the FFN norm of fused decode, even
// for models with 1e-6.
//
// Source of names, argument order and layouts: Xilinx/mlir-air e972f2942,
// programming_examples/llms.
func NewNPU(c *checkpoint.Config, opts *NPUOptions) (*Plan, error) {
	if c == nil {
		return nil, &OptionError{"c", nil, "a model's configuration"}
	}
	o := NPUOptions{}
	if opts != nil {
		o = *opts
	}
	knobs := TunedKnobs()
	if o.Knobs != nil {
		knobs = *o.Knobs
	}
	if err := knobs.validate(); err != nil {
		return nil, fmt.Errorf("plan: the NPU's plan: %w", err)
	}
	if o.Array == nil {
		o.Array = xdna2.NPU2()
	}
	if o.Registry == nil {
		o.Registry = xdna2.PublishedRegistry()
	}
	if err := checkNPUConfig(c); err != nil {
		return nil, err
	}
	lengths, err := npuLengths(c, o)
	if err != nil {
		return nil, err
	}
	b := &npuPlanner{
		npuMapper: npuMapper{knobs, o.Array, o.Registry, map[string]npu.Mapping{}},
		cfg:       c,
		longest:   slices.Max(lengths),
		values:    map[string]bool{},
		plan: &Plan{
			Version:     version,
			Model:       identity(c),
			Device:      arrayXDNA2,
			SeqLen:      cmp.Or(o.SeqLen, defaultSeqLen(c, 0)),
			Chunk:       slices.Max(lengths),
			Activations: dtype.BF16,
			Cache:       dtype.BF16,
			Runtime:     knobs.Runtime,
		},
	}
	b.hostValue(hostvalue.IDs, dtype.I32, op.Rows)
	b.hostValue(hostvalue.RoPE, dtype.F32, op.Rows, c.HeadDim)
	b.hostValue(hostvalue.Picks, dtype.I32, op.Picks)
	b.hostValue(hostvalue.Logits, dtype.F32, op.Picks, c.Vocab)
	for _, s := range lengths {
		b.prefill(s)
	}
	b.decode()
	if b.err != nil {
		return nil, b.err
	}
	if err := b.check(); err != nil {
		return nil, err
	}
	return b.plan, b.plan.price(xdna2.NewClock(xdna2.HostNpukit()))
}

// Bounds on a configuration, far above those of any model, so that sums and products do not
// overflow.
const (
	maxLayers = 1 << 12
	maxWidth  = 1 << 24

	maxElements = 1 << 28 // of an activation: the limit of the ops
)

// checkNPUConfig returns an error if no plan can be made for the configuration. A checkpoint has
// already checked its own.
func checkNPUConfig(c *checkpoint.Config) error {
	for _, d := range []struct {
		name      string
		n, atMost int
	}{
		{"layers", c.Layers, maxLayers}, {"context", c.Context, math.MaxInt},
		{"hidden size", c.Hidden, maxWidth}, {"feed-forward width", c.FFN, maxWidth},
		{"vocabulary", c.Vocab, maxWidth},
		{"heads", c.Heads, maxWidth}, {"key heads", c.KVHeads, maxWidth}, {"head_dim", c.HeadDim, maxWidth},
		{"width of the heads", c.Heads * c.HeadDim, maxWidth},
	} {
		if d.n < 1 || d.n > d.atMost {
			return fmt.Errorf("plan: %s for the NPU: the configuration's %s is %d, want 1 to %d",
				c.Name, d.name, d.n, d.atMost)
		}
	}
	if c.Heads%c.KVHeads != 0 || c.HeadDim%2 != 0 {
		return fmt.Errorf("plan: %s for the NPU: %d heads, %d key heads, head_dim %d: "+
			"want a multiple of the key heads, and an even head_dim", c.Name, c.Heads, c.KVHeads, c.HeadDim)
	}
	return nil
}

// npuLengths returns the rows of the prefill passes, ascending.
func npuLengths(c *checkpoint.Config, o NPUOptions) ([]int, error) {
	seq := cmp.Or(o.SeqLen, defaultSeqLen(c, 0))
	if seq > maxPositions {
		return nil, fmt.Errorf("plan: the sequence length is %d, a plan has at most %d positions",
			seq, maxPositions)
	}
	if seq < 1 || seq > c.Context {
		return nil, fmt.Errorf("plan: the sequence length is %d, %s has a context of %d", seq,
			c.Name, c.Context)
	}
	lengths := slices.Clone(o.Lengths)
	if len(lengths) == 0 {
		s := min(defaultLength, seq)
		for _, step := range []int{512, 256, 64} {
			if s >= step {
				s -= s % step
				break
			}
		}
		lengths = []int{s}
	}
	slices.Sort(lengths)
	lengths = slices.Compact(lengths)
	if lengths[0] < 2 || lengths[len(lengths)-1] > seq {
		return nil, fmt.Errorf("plan: prefill lengths %v: want 2 to %d, the sequence length", lengths, seq)
	}
	widest := max(c.FFN, c.Hidden, c.Heads*c.HeadDim)
	if most := maxElements / widest; lengths[len(lengths)-1] > most {
		return nil, fmt.Errorf("plan: a prefill of %d rows is too long for %s: "+
			"with %d columns and at most %d elements per launch, it can have %d rows: "+
			"make it shorter, and decode the rest of a prompt",
			lengths[len(lengths)-1], c.Name, widest, maxElements, most)
	}
	return lengths, nil
}

// npuPlanner builds a plan for the NPU.
type npuPlanner struct {
	npuMapper
	cfg     *checkpoint.Config
	plan    *Plan
	longest int // of the prefill lengths
	values  map[string]bool
	err     error
}

func (b *npuPlanner) fail(err error) {
	if b.err == nil && err != nil {
		b.err = fmt.Errorf("plan: %s for the NPU: %w", b.cfg.Name, err)
	}
}

// hostValue declares a value that the host fills or reads.
func (b *npuPlanner) hostValue(name string, t dtype.Type, shape ...int) {
	b.values[name] = true
	b.plan.Values = append(b.plan.Values, Value{name, t, shape})
}

// check checks the finished plan, and every program that runs on the array.
func (b *npuPlanner) check() error {
	if err := b.plan.checkArray(b.array); err != nil {
		b.fail(err)
		return b.err
	}
	if err := b.plan.Validate(); err != nil {
		return errors.Join(
			errors.New("plan: the NPU planner made an invalid plan: please report this bug"), err)
	}
	return nil
}

// CheckNPU validates the plan and returns an error if it is for another model than c, or if the array
// cannot run a program that the plan runs on it. The latter wraps an [*xdna2.ResourceError], which
// names the resource and a size that fits. Check plans that were edited by hand with it; the
// planner checks its own.
func (p *Plan) CheckNPU(c *checkpoint.Config, a *xdna2.Array) error {
	if err := p.checkModel(c); err != nil {
		return err
	}
	if a == nil {
		return &OptionError{"a", nil, "an array such as xdna2.NPU2()"}
	}
	return p.checkArray(a)
}

// checkArray checks every program that runs on the array against the array's rules.
func (p *Plan) checkArray(a *xdna2.Array) error {
	on := map[string]bool{}
	for _, pass := range p.Passes() {
		for _, s := range pass.allSteps() {
			on[s.Program] = on[s.Program] || s.On == OnDevice
		}
	}
	for _, q := range p.Programs {
		if on[q.Name] {
			if err := xdna2.Check(q, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// npuWeight returns a tensor of the checkpoint in a layout.
func npuWeight(name string, l npu.Layout, shape ...int) *npuTensor {
	return &npuTensor{name: name, typ: dtype.BF16, shape: shape, layout: &l}
}

// npuValue returns an activation in BF16. Host programs see it as rows of the last dimension.
func npuValue(name, value string, shape ...int) *npuTensor {
	return &npuTensor{name: name, typ: dtype.BF16, shape: shape,
		host: []int{op.Rows, shape[len(shape)-1]}, value: value}
}

// The layouts of weights.
func layoutTranspose(l npu.Layout) npu.Layout {
	return npu.Layout{Op: "transpose", Args: []npu.Layout{l}}
}

func layoutPad(l npu.Layout, rows, cols int) npu.Layout {
	return npu.Layout{Op: "pad", Args: []npu.Layout{l}, Numbers: []int{rows, cols}}
}

func layoutRows(l npu.Layout, from, to int) npu.Layout {
	return npu.Layout{Op: "rows", Args: []npu.Layout{l}, Numbers: []int{from, to}}
}

func layoutRepeat(l npu.Layout, n int) npu.Layout {
	return npu.Layout{Op: "repeat", Args: []npu.Layout{l}, Numbers: []int{n}}
}

func layoutStack(l ...npu.Layout) npu.Layout { return npu.Layout{Op: "stack", Args: l} }

func layoutInterleave(a, b npu.Layout) npu.Layout {
	return npu.Layout{Op: "interleave", Args: []npu.Layout{a, b}}
}

func layoutZeros(rows, cols int) npu.Layout {
	return npu.Layout{Op: "zeros", Numbers: []int{rows, cols}}
}
