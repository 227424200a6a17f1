package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/internal/published"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/npu/dtype"
)

// subject is a deployment of the report.
type subject struct {
	name   string // of its workspace
	model  string // as tables call it
	device string
	seqLen int
	// positions is how many ids the gates score; 0 is a deployment's default. A model without a
	// tokenizer is scored on what the oracle writes, id by id, which takes its time.
	positions int
	note      string // what of the model is not whole
	make      func(folder string) error
	gguf      string // the checkpoint itself, where it is not made
}

// Of deployments with random weights: so many layers as make a model, and fewer than would take
// days.
const randomLayers = 1

// sequence is the published length. On the virtual array prompts are shorter, so that a deployment
// takes minutes: every program there has a row for each position, in every pass, and the oracle
// computes its products once more. Widths, heads and vocabularies are whole.
const sequence, shortSequence, randomSequence = 2048, 256, 128

// fewPositions is enough for gates of models that have no text of their own.
const fewPositions = 64

// subjects are a trained model on both devices, and the nine published shapes with random weights
// on the virtual array.
func subjects() []subject {
	gguf := demoModel()
	list := []subject{
		{name: "smollm2-cpu", model: "SmolLM2-135M-Instruct", device: "cpu", seqLen: sequence, gguf: gguf,
			note: "Q4_1 weights"},
		{name: "smollm2-sim", model: "SmolLM2-135M-Instruct", device: "sim", seqLen: shortSequence,
			note: "Q4_1 as BF16", make: func(folder string) error {
				return widen(gguf, folder)
			}},
	}
	for _, m := range published.Models() {
		c := m.Config
		spec := ckptgen.Spec{Family: c.Family, Layers: randomLayers, Hidden: c.Hidden, Heads: c.Heads,
			KVHeads: c.KVHeads, HeadDim: c.HeadDim, FFN: c.FFN, Vocab: c.Vocab,
			Context: c.Context, Tie: true, NormEps: c.NormEps, RopeTheta: c.RoPE.Theta}
		if r := c.RoPE; r.Scaling != "" {
			spec.Rope = map[string]any{"rope_type": r.Scaling, "factor": r.Factor, "low_freq_factor": r.LowFreqFactor,
				"high_freq_factor":                 r.HighFreqFactor,
				"original_max_position_embeddings": r.OriginalContext}
		}
		list = append(list, subject{name: strings.ToLower(m.Name) + "-sim", model: m.Name, device: "sim",
			seqLen: randomSequence, positions: fewPositions,
			note: fmt.Sprintf("%d of %d layers", randomLayers, c.Layers),
			make: func(folder string) error { return ckptgen.Write(folder, spec, 7) }})
	}
	return list
}

// checkpoint makes the subject's model, unless it is there.
func (s subject) checkpoint(folder string) (string, error) {
	if s.make == nil {
		return s.gguf, nil
	}
	path := filepath.Join(folder, s.name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	part := path + ".part"
	if err := os.RemoveAll(part); err != nil {
		return "", err
	}
	if err := s.make(part); err != nil {
		return "", err
	}
	return path, os.Rename(part, path)
}

// demoModel is the model that `make demo` fetches.
func demoModel() string {
	dir := os.Getenv("NPUKIT_CACHE")
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			base = "."
		}
		dir = filepath.Join(base, "npukit")
	}
	return filepath.Join(dir, "models", "SmolLM2-135M-Instruct-Q4_1.gguf")
}

// widen writes a checkpoint again with all weights in BF16, as the array reads them.
func widen(path, folder string) (err error) {
	ck, err := checkpoint.Open(path, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ck.Close()) }()
	c := ck.Config()
	spec := ckptgen.Spec{Family: c.Family, Layers: c.Layers, Hidden: c.Hidden, Heads: c.Heads, KVHeads: c.KVHeads,
		HeadDim: c.HeadDim, FFN: c.FFN, Vocab: c.Vocab,
		Context: c.Context, Tie: c.TieEmbeddings, NormEps: c.NormEps, RopeTheta: c.RoPE.Theta}
	if err := ckptgen.Write(folder, spec, 1); err != nil { // for its config.json; the weights follow
		return err
	}
	var list []ckptgen.Tensor
	for _, listed := range ck.Tensors() {
		t, err := ck.Tensor(listed.Name)
		if err != nil {
			return err
		}
		wide := make([]float32, t.Elements())
		if err := dtype.Dequantize(wide, t.Type, t.Data); err != nil {
			return err
		}
		narrow := make([]dtype.BFloat16, len(wide))
		dtype.F32ToBF16(narrow, wide)
		list = append(list, ckptgen.Tensor{Name: t.Name, Type: dtype.BF16, Shape: t.Shape, Data: dtype.AsBytes(narrow)})
	}
	if v := ck.Text().Vocab; v != nil {
		if err := writeTokenizer(folder, *v); err != nil {
			return err
		}
	}
	return ckptgen.WriteSafetensors(filepath.Join(folder, "model.safetensors"), list)
}
