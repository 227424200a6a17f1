package oracle

import (
	"fmt"

	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/npu/dtype"
)

// Model is a checkpoint prepared for computation. It is safe for concurrent use while the
// checkpoint is open; each goroutine needs its own [State].
type Model struct {
	ck     *checkpoint.Checkpoint
	cfg    *checkpoint.Config
	freq   []float32 // [headDim/2] RoPE, radians per position
	embed  weight    // [vocab, hidden]
	layers []layer
	norm   []float32 // [hidden]
	head   weight    // [vocab, hidden]; the embedding if tied
}

// layer holds the weights of a decoder layer. Matrices are [out, in], as in Hugging Face linear
// layers.
type layer struct {
	attnNorm            []float32 // [hidden]
	q                   weight    // [heads*headDim, hidden]
	k, v                weight    // [kvHeads*headDim, hidden]
	qBias, kBias, vBias []float32 // one per output; nil if the family has none
	qNorm, kNorm        []float32 // [headDim]; nil if the family has none
	o                   weight    // [hidden, heads*headDim]
	ffnNorm             []float32 // [hidden]
	gate, up            weight    // [ffn, hidden]
	down                weight    // [hidden, ffn]
}

// weight is a matrix in the checkpoint's type.
type weight struct{ checkpoint.Tensor }

// read dequantizes rows from to to into dst, which must have their size.
func (w weight) read(dst []float32, from, to int) error {
	size := w.Bytes() / w.Shape[0]
	if err := dtype.Dequantize(dst, w.Type, w.Data[from*size:to*size]); err != nil {
		return fmt.Errorf("oracle: %s: %w", w.Name, err)
	}
	return nil
}

// Open prepares a checkpoint. Matrices stay in the checkpoint and are dequantized a few rows at a
// time, so the checkpoint must stay open while the model is used. A pass that starts after it was
// closed returns [checkpoint.ErrClosed]; closing it during a pass crashes the program.
func Open(ck *checkpoint.Checkpoint) (*Model, error) {
	if ck == nil {
		return nil, fmt.Errorf("oracle: checkpoint is nil")
	}
	c := ck.Config()
	var err error // the first one
	tensor := func(name string) weight {
		t, e := ck.Tensor(name)
		if err == nil && e != nil {
			err = fmt.Errorf("oracle: %w", e)
		}
		return weight{t}
	}
	vector := func(name string) []float32 {
		w := tensor(name)
		if err != nil {
			return nil
		}
		x := make([]float32, w.Elements())
		err = w.read(x, 0, w.Shape[0])
		return x
	}
	m := &Model{
		ck:     ck,
		cfg:    c,
		freq:   frequencies(c.RoPE, c.HeadDim),
		embed:  tensor("model.embed_tokens.weight"),
		layers: make([]layer, c.Layers),
		norm:   vector("model.norm.weight"),
	}
	m.head = m.embed
	if !c.TieEmbeddings {
		m.head = tensor("lm_head.weight")
	}
	for i := range m.layers {
		prefix := fmt.Sprintf("model.layers.%d.", i)
		l := layer{
			attnNorm: vector(prefix + "input_layernorm.weight"),
			q:        tensor(prefix + "self_attn.q_proj.weight"),
			k:        tensor(prefix + "self_attn.k_proj.weight"),
			v:        tensor(prefix + "self_attn.v_proj.weight"),
			o:        tensor(prefix + "self_attn.o_proj.weight"),
			ffnNorm:  vector(prefix + "post_attention_layernorm.weight"),
			gate:     tensor(prefix + "mlp.gate_proj.weight"),
			up:       tensor(prefix + "mlp.up_proj.weight"),
			down:     tensor(prefix + "mlp.down_proj.weight"),
		}
		if c.QKVBias {
			l.qBias = vector(prefix + "self_attn.q_proj.bias")
			l.kBias = vector(prefix + "self_attn.k_proj.bias")
			l.vBias = vector(prefix + "self_attn.v_proj.bias")
		}
		if c.QKNorm {
			l.qNorm = vector(prefix + "self_attn.q_norm.weight")
			l.kNorm = vector(prefix + "self_attn.k_norm.weight")
		}
		m.layers[i] = l
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Config returns the model's configuration. Callers must not modify it.
func (m *Model) Config() *checkpoint.Config { return m.cfg }
