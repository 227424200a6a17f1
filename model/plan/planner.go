package plan

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/internal/hostvalue"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// Options are the choices that a planner leaves open. The zero value of a field is its default.
type Options struct {
	SeqLen      int        // positions of a session; default: the model's context, at most MaxSeqLen
	MaxSeqLen   int        // bound on the default of SeqLen; default DefaultMaxContext
	Chunk       int        // most rows of a prompt in one pass; default 512, for the NPU 2048
	Activations dtype.Type // BF16 (default) or F32, of the left operand of matrix products
	Cache       dtype.Type // BF16 (default), F16 or F32
}

// DefaultMaxContext is the default of [Options].MaxSeqLen. Some checkpoints declare contexts that
// fit into no memory: at 131,072 positions the KV cache of a model of Llama-3.2-1B's shape takes
// 4.3 GB, and that of Llama-3.1-8B's shape 17 GB.
const DefaultMaxContext = 131072

// defaultChunk is large enough that matrix products are compute-bound, and small enough that the
// activations of a chunk stay in cache.
const defaultChunk = 512

// New plans a checkpoint for a device.
//
// For a device that takes any number of rows, the plan has one program for each layer and submits a
// whole pass at once; only the rows whose logits are asked for reach the LM head. For an XDNA 2
// array, New calls [NewNPU].
func New(ck *checkpoint.Checkpoint, info npu.Info, opts *Options) (*Plan, error) {
	if ck == nil {
		return nil, &OptionError{"ck", nil, "an open checkpoint"}
	}
	if opts != nil && opts.MaxSeqLen < 0 {
		return nil, &OptionError{"PlanOptions.MaxSeqLen", opts.MaxSeqLen, "0 (the default) or more"}
	}
	if info.Array == arrayXDNA2 {
		return planForArray(ck.Config(), opts)
	}
	if !info.AnyRows {
		return nil, fmt.Errorf("plan: no planner for device %s: its programs have fixed shapes", info.Kind)
	}
	c := ck.Config()
	o := Options{}
	if opts != nil {
		o = *opts
	}
	p := &Plan{
		Version:     version,
		Model:       identity(c),
		Device:      info.Kind,
		SeqLen:      cmp.Or(o.SeqLen, defaultSeqLen(c, o.MaxSeqLen)),
		Chunk:       cmp.Or(o.Chunk, defaultChunk),
		Activations: cmp.Or(o.Activations, dtype.BF16),
		Cache:       cmp.Or(o.Cache, dtype.BF16),
	}
	if p.Activations != dtype.BF16 && p.Activations != dtype.F32 {
		return nil, &OptionError{"PlanOptions.Activations", p.Activations, "BF16 or F32"}
	}
	if p.Cache != dtype.BF16 && p.Cache != dtype.F16 && p.Cache != dtype.F32 {
		return nil, &OptionError{"PlanOptions.Cache", p.Cache, "BF16, F16 or F32"}
	}
	if p.SeqLen > c.Context {
		want := fmt.Sprintf("at most %d, the context of %s", c.Context, c.Name)
		return nil, &OptionError{"PlanOptions.SeqLen", p.SeqLen, want}
	}
	b := &planner{ck: ck, cfg: c, plan: p, seen: map[string]string{}}
	b.value(hostvalue.IDs, dtype.I32, op.Rows)
	b.value(hostvalue.RoPE, dtype.F32, op.Rows, c.HeadDim)
	b.value(hostvalue.Picks, dtype.I32, op.Picks)
	b.value(hostvalue.Logits, dtype.F32, op.Picks, c.Vocab)
	b.value("x.0", dtype.F32, op.Rows,
		c.Hidden) // the residual stream: layers alternate between two buffers
	b.value("x.1", dtype.F32, op.Rows, c.Hidden)

	b.embed("x.0")
	for l := range c.Layers {
		b.layer(l, fmt.Sprintf("x.%d", l%2), fmt.Sprintf("x.%d", 1-l%2))
	}
	b.head(fmt.Sprintf("x.%d", c.Layers%2))
	if b.err != nil {
		return nil, b.err
	}
	p.Prefill = []Pass{b.pass}
	p.Decode = b.pass
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("plan: %s: %w", c.Name, err)
	}
	return p, nil
}

// defaultSeqLen returns the positions of a plan whose options do not set them. If most is 0,
// DefaultMaxContext bounds them.
func defaultSeqLen(c *checkpoint.Config, most int) int {
	return min(c.Context, cmp.Or(most, DefaultMaxContext), maxPositions)
}

// planForArray plans for the NPU with the options that apply there.
func planForArray(c *checkpoint.Config, opts *Options) (*Plan, error) {
	o := &NPUOptions{}
	if opts != nil {
		if opts.Activations != dtype.Invalid && opts.Activations != dtype.BF16 ||
			opts.Cache != dtype.Invalid && opts.Cache != dtype.BF16 {
			return nil, fmt.Errorf(
				"plan: activations are %s and the cache is %s, want BF16 for the NPU's programs",
				opts.Activations, opts.Cache)
		}
		o.SeqLen = cmp.Or(opts.SeqLen, defaultSeqLen(c, opts.MaxSeqLen))
		if opts.Chunk != 0 {
			o.Lengths = []int{opts.Chunk}
		}
	}
	return NewNPU(c, o)
}

// planner builds a plan step by step.
type planner struct {
	ck   *checkpoint.Checkpoint
	cfg  *checkpoint.Config
	plan *Plan
	pass Pass
	seen map[string]string // name of the program with this JSON
	err  error
}

func (b *planner) value(name string, t dtype.Type, shape ...int) {
	b.plan.Values = append(b.plan.Values, Value{name, t, shape})
}

// step is a program under construction and the bindings of its arguments.
type step struct {
	*npu.Program
	b    *planner
	name string
	args []Binding
}

func (b *planner) step(program, name string) *step {
	return &step{Program: npu.NewProgram(program), b: b, name: name}
}

func (s *step) in(name, value string, t dtype.Type, shape ...int) npu.Ref {
	s.args = append(s.args, Binding{Value: value})
	return s.In(name, t, shape...)
}

func (s *step) out(name, value string, t dtype.Type, shape ...int) npu.Ref {
	s.args = append(s.args, Binding{Value: value})
	return s.Out(name, t, shape...)
}

func (s *step) state(name, state string, t dtype.Type, shape ...int) npu.Ref {
	s.args = append(s.args, Binding{State: state})
	return s.State(name, t, shape...)
}

func (s *step) scratch(name string, t dtype.Type, shape ...int) npu.Ref {
	s.args = append(s.args, Binding{})
	return s.Scratch(name, t, shape...)
}

// weight binds a tensor of the checkpoint in its stored layout.
func (s *step) weight(name, tensor string) npu.Ref {
	t, err := s.b.ck.Stat(tensor)
	if err != nil {
		s.b.fail(err)
	}
	l := npu.T(tensor)
	s.args = append(s.args, Binding{Const: &l})
	return s.Const(name, t.Type, t.Shape...)
}

func (b *planner) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// add finishes a step. Equal programs are added once: the layers of a checkpoint share theirs,
// unless their weights have different types, as in some quantized files.
func (b *planner) add(to *[]Step, s *step) {
	if err := s.Err(); err != nil {
		b.fail(err)
		return
	}
	base := s.Program.Name
	key, err := json.Marshal(s.Program)
	if err != nil {
		b.fail(err)
		return
	}
	name, ok := b.seen[string(key)]
	if !ok {
		name = base
		for n := 2; b.plan.Program(name) != nil; n++ {
			name = fmt.Sprintf("%s.%d", base, n)
		}
		b.seen[string(key)] = name
		s.Program.Name = name
		b.plan.Programs = append(b.plan.Programs, s.Program)
	}
	*to = append(*to, Step{Name: s.name, Program: name, On: OnDevice, Args: s.args})
}

func (b *planner) embed(x string) {
	s := b.step("embed", "embed")
	c := b.cfg
	ids := s.in("ids", hostvalue.IDs, dtype.I32, op.Rows)
	table := s.weight("table", "model.embed_tokens.weight")
	y := s.out("x", x, dtype.F32, op.Rows, c.Hidden)
	s.Launch("embed", op.Embed{Rows: op.Rows, Vocab: c.Vocab, Width: c.Hidden}, ids, table, y)
	b.add(&b.pass.Steps, s)
}

// layer adds one decoder layer: x + attention(norm(x)), then the same with the feed-forward block.
func (b *planner) layer(l int, from, to string) {
	c, act := b.cfg, b.plan.Activations
	prefix := fmt.Sprintf("model.layers.%d.", l)
	s := b.step("layer", fmt.Sprintf("layer.%d", l))
	width := c.Heads * c.HeadDim

	x := s.in("x", from, dtype.F32, op.Rows, c.Hidden)
	table := s.in("rope", hostvalue.RoPE, dtype.F32, op.Rows, c.HeadDim)
	kcache := s.state("kcache", fmt.Sprintf("k.%d", l), b.plan.Cache, c.KVHeads, op.Capacity, c.HeadDim)
	vcache := s.state("vcache", fmt.Sprintf("v.%d", l), b.plan.Cache, c.KVHeads, op.Capacity, c.HeadDim)

	h := s.norm("attn.norm", x, prefix+"input_layernorm.weight", act)

	// Each projection takes the steps that the family has: product, bias, norm per head, rotation.
	project := func(name, tensor string, heads int) npu.Ref {
		y := s.scratch(name, dtype.F32, op.Rows, heads*c.HeadDim)
		w := s.weight(name+".weight", prefix+"self_attn."+tensor+".weight")
		s.Launch("attn."+name, op.MatMul{M: op.Rows, K: c.Hidden, N: heads * c.HeadDim, TransB: true},
			h, w, y)
		if c.QKVBias {
			bias := s.weight(name+".bias", prefix+"self_attn."+tensor+".bias")
			z := s.scratch(name+"_bias", dtype.F32, op.Rows, heads*c.HeadDim)
			s.Launch("attn."+name+"_bias", op.Add{Rows: op.Rows, Width: heads * c.HeadDim, Broadcast: true},
				y, bias, z)
			y = z
		}
		return y
	}
	rotate := func(name, tensor string, heads int) npu.Ref {
		y := project(name, tensor+"_proj", heads)
		if c.QKNorm {
			w := s.weight(name+"_norm.weight", prefix+"self_attn."+tensor+"_norm.weight")
			z := s.scratch(name+"_norm", dtype.F32, op.Rows, heads*c.HeadDim)
			s.Launch("attn."+name+"_norm",
				op.RMSNorm{Rows: op.Rows, Width: c.HeadDim, Heads: heads, Eps: c.NormEps}, y, w, z)
			y = z
		}
		z := s.scratch(name+"_rope", dtype.F32, op.Rows, heads*c.HeadDim)
		s.Launch("attn."+name+"_rope", op.RoPE{Rows: op.Rows, Heads: heads, HeadDim: c.HeadDim}, y,
			table, z)
		return z
	}
	q := rotate("q", "q", c.Heads)
	k := rotate("k", "k", c.KVHeads)
	v := project("v", "v_proj", c.KVHeads)
	write := op.KVWrite{Rows: op.Rows, KVHeads: c.KVHeads, HeadDim: c.HeadDim}
	s.Launch("attn.k_write", write, k, kcache)
	s.Launch("attn.v_write", write, v, vcache)

	attn := s.scratch("attn", act, op.Rows, width)
	s.Launch("attn.core",
		op.Attention{Rows: op.Rows, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Cached: true},
		q, kcache, vcache, attn)
	o := s.linear("attn.o", attn, prefix+"self_attn.o_proj.weight", width, c.Hidden)
	x1 := s.scratch("x1", dtype.F32, op.Rows, c.Hidden)
	s.Launch("attn.residual", op.Add{Rows: op.Rows, Width: c.Hidden}, o, x, x1)

	h = s.norm("ffn.norm", x1, prefix+"post_attention_layernorm.weight", act)
	gate := s.linear("ffn.gate", h, prefix+"mlp.gate_proj.weight", c.Hidden, c.FFN)
	up := s.linear("ffn.up", h, prefix+"mlp.up_proj.weight", c.Hidden, c.FFN)
	mul := s.scratch("ffn.act", act, op.Rows, c.FFN)
	s.Launch("ffn.act", op.SiLUMul{Rows: op.Rows, Width: c.FFN}, gate, up, mul)
	down := s.linear("ffn.down", mul, prefix+"mlp.down_proj.weight", c.FFN, c.Hidden)
	y := s.out("y", to, dtype.F32, op.Rows, c.Hidden)
	s.Launch("ffn.residual", op.Add{Rows: op.Rows, Width: c.Hidden}, down, x1, y)

	b.add(&b.pass.Steps, s)
}

// norm adds an RMSNorm over whole rows of the residual stream.
func (s *step) norm(name string, x npu.Ref, tensor string, t dtype.Type) npu.Ref {
	c := s.b.cfg
	w := s.weight(name+".weight", tensor)
	y := s.scratch(name, t, op.Rows, c.Hidden)
	s.Launch(name, op.RMSNorm{Rows: op.Rows, Width: c.Hidden, Eps: c.NormEps}, x, w, y)
	return y
}

// linear adds a product with a weight matrix of the checkpoint, [n, k] as Hugging Face stores it.
func (s *step) linear(name string, x npu.Ref, tensor string, k, n int) npu.Ref {
	w := s.weight(name+".weight", tensor)
	y := s.scratch(name, dtype.F32, op.Rows, n)
	s.Launch(name, op.MatMul{M: op.Rows, K: k, N: n, TransB: true}, x, w, y)
	return y
}

// head normalizes the picked rows and multiplies them by the LM head, or by the embedding table if
// the two are tied.
func (b *planner) head(x string) {
	c, act := b.cfg, b.plan.Activations
	s := b.step("head", "head")
	in := s.in("x", x, dtype.F32, op.Rows, c.Hidden)
	picks := s.in("picks", hostvalue.Picks, dtype.I32, op.Picks)
	last := s.scratch("last", dtype.F32, op.Picks, c.Hidden)
	s.Launch("pick", op.Pick{Picks: op.Picks, Rows: op.Rows, Width: c.Hidden}, picks, in, last)
	w := s.weight("norm.weight", "model.norm.weight")
	h := s.scratch("norm", act, op.Picks, c.Hidden)
	s.Launch("norm", op.RMSNorm{Rows: op.Picks, Width: c.Hidden, Eps: c.NormEps}, last, w, h)
	tensor := "lm_head.weight"
	if c.TieEmbeddings {
		tensor = "model.embed_tokens.weight"
	}
	table := s.weight("lm_head.weight", tensor)
	logits := s.out("logits", hostvalue.Logits, dtype.F32, op.Picks, c.Vocab)
	s.Launch("lm_head", op.MatMul{M: op.Picks, K: c.Hidden, N: c.Vocab, TransB: true}, h, table, logits)
	b.add(&b.pass.Head, s)
}

// sizeOf returns the size in bytes of a shape whose open dimensions count as one.
func sizeOf(t dtype.Type, shape []int) int {
	return t.Bytes((op.Size{Rows: 1, Picks: 1, Capacity: 1}).Elements(shape))
}
