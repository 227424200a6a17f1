// Package rho computes the hardware utilization measure of arXiv 2606.07586, appendix A.
package rho

import "fmt"

// Dims are the model dimensions that [Of] needs.
type Dims struct {
	Layers int
	Emb    int // width of a layer's input, d in the paper
	Query  int // heads times head_dim
	KV     int // key heads times head_dim
	FFN    int
}

// Form selects the query width used to count work.
type Form uint8

const (
	// AsPublished uses d as the query width, as the paper does. That is wrong for Qwen3-0.6B and
	// Qwen3-4B.
	AsPublished Form = iota
	// TrueWidth uses the actual width of the query and output projections.
	TrueWidth
)

// String returns the form's name.
func (f Form) String() string {
	if f == TrueWidth {
		return "true query width"
	}
	return "as published"
}

func (d Dims) query(f Form) float64 {
	if f == TrueWidth {
		return float64(d.Query)
	}
	return float64(d.Emb)
}

// params returns the number of weights in a layer's projections.
func (d Dims) params(f Form) float64 {
	emb := float64(d.Emb)
	return 2*emb*d.query(f) + 2*emb*float64(d.KV) + 3*emb*float64(d.FFN)
}

// PrefillFLOPs returns the work of a prefill of seq tokens as rho counts it: projections and
// attention without savings from the mask, no LM head, no embedding.
func (d Dims) PrefillFLOPs(seq int, f Form) float64 {
	s := float64(seq)
	return float64(d.Layers) * (2*s*d.params(f) + 2*s*s*d.query(f))
}

// DecodeBytes returns the work of decoding one token after seq others as rho counts it: BF16
// weights and cache, each read once.
func (d Dims) DecodeBytes(seq int, f Form) float64 {
	return float64(d.Layers) * (2*d.params(f) + 4*float64(seq)*float64(d.KV))
}

// Run is a measured or predicted run after seq positions.
type Run struct {
	Dims         Dims
	Seq          int
	TTFT         float64 // seconds to the first token
	TokensPerSec float64
}

// Reference returns the reference run of the paper: Llama-3.2-1B at 2048 positions, 1.3 s and
// 10.8 tokens/s. That is 3.28 TFLOP/s in prefill and 21.7 GB/s in decode.
func Reference() Run {
	return Run{Dims: Dims{Layers: 16, Emb: 2048, Query: 2048, KV: 512, FFN: 8192}, Seq: 2048, TTFT: 1.3,
		TokensPerSec: 10.8}
}

// Of returns the hardware utilization of a run relative to a reference run: FLOPs per second for
// prefill, bytes per second for decode, each divided by the reference's. It returns an error if a
// dimension or time is not positive.
//
// Source: arXiv 2606.07586, appendix A.
func Of(run, reference Run, form Form) (prefill, decode float64, err error) {
	for _, r := range []Run{run, reference} {
		d := r.Dims
		if min(d.Layers, d.Emb, d.Query, d.KV, d.FFN, r.Seq) <= 0 || !(r.TTFT > 0) || !(r.TokensPerSec > 0) {
			return 0, 0, fmt.Errorf("rho: dimensions, length and speeds must be positive, got %+v", r)
		}
	}
	flops := func(r Run) float64 { return r.Dims.PrefillFLOPs(r.Seq, form) / r.TTFT }
	bytes := func(r Run) float64 { return r.Dims.DecodeBytes(r.Seq, form) * r.TokensPerSec }
	return flops(run) / flops(reference), bytes(run) / bytes(reference), nil
}
