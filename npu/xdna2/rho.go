package xdna2

import "fmt"

// RhoDims are the numbers of a model that rho needs.
type RhoDims struct {
	Layers int
	Emb    int // width of a layer's input: d
	Query  int // heads times head_dim
	KV     int // key heads times head_dim
	FFN    int
}

// RhoForm says which query width the work is counted with.
type RhoForm uint8

const (
	// RhoAsPublished takes the query width for d, as the paper's figures do. That is false for Qwen3-0.6B and Qwen3-4B.
	RhoAsPublished RhoForm = iota
	// RhoTrueWidth counts the query projection and the output projection as they are.
	RhoTrueWidth
)

// String names the form.
func (f RhoForm) String() string {
	if f == RhoTrueWidth {
		return "true query width"
	}
	return "as published"
}

func (d RhoDims) query(f RhoForm) float64 {
	if f == RhoTrueWidth {
		return float64(d.Query)
	}
	return float64(d.Emb)
}

// params is the number of weights of a layer's linear maps.
func (d RhoDims) params(f RhoForm) float64 {
	emb := float64(d.Emb)
	return 2*emb*d.query(f) + 2*emb*float64(d.KV) + 3*emb*float64(d.FFN)
}

// PrefillFLOPs is the work of a prefill of seq tokens as rho counts it: linear maps and attention without a mask's saving, no LM head, no
// embedding.
func (d RhoDims) PrefillFLOPs(seq int, f RhoForm) float64 {
	s := float64(seq)
	return float64(d.Layers) * (2*s*d.params(f) + 2*s*s*d.query(f))
}

// DecodeBytes is the work of a token after seq others as rho counts it: BF16 weights and cache read once.
func (d RhoDims) DecodeBytes(seq int, f RhoForm) float64 {
	return float64(d.Layers) * (2*d.params(f) + 4*float64(seq)*float64(d.KV))
}

// RhoRun is a measured or predicted run: seconds to the first token and tokens a second, after seq positions.
type RhoRun struct {
	Dims         RhoDims
	Seq          int
	TTFT         float64 // s
	TokensPerSec float64
}

// RhoReference is the run that rho compares with in the paper: Llama-3.2-1B at 2048 positions, 1.3 s and 10.8 tokens/s, which is 3.28
// TFLOP/s of prefill and 21.7 GB/s of decode.
func RhoReference() RhoRun {
	return RhoRun{Dims: RhoDims{Layers: 16, Emb: 2048, Query: 2048, KV: 512, FFN: 8192}, Seq: 2048, TTFT: 1.3, TokensPerSec: 10.8}
}

// Rho is how well a run uses its machine compared with a reference run: work per time over the reference's work per time, for prefill in
// FLOPs and for decode in bytes. Above 1 is better than the reference.
//
// Source: arXiv 2606.07586, appendix A.
func Rho(run, reference RhoRun, form RhoForm) (prefill, decode float64, err error) {
	for _, r := range []RhoRun{run, reference} {
		d := r.Dims
		if min(d.Layers, d.Emb, d.Query, d.KV, d.FFN, r.Seq) <= 0 || !(r.TTFT > 0) || !(r.TokensPerSec > 0) {
			return 0, 0, fmt.Errorf("xdna2: rho: want every dimension, the sequence length and both speeds above zero, got %+v", r)
		}
	}
	prefill = run.Dims.PrefillFLOPs(run.Seq, form) / run.TTFT / (reference.Dims.PrefillFLOPs(reference.Seq, form) / reference.TTFT)
	decode = run.Dims.DecodeBytes(run.Seq, form) * run.TokensPerSec / (reference.Dims.DecodeBytes(reference.Seq, form) * reference.TokensPerSec)
	return prefill, decode, nil
}
