package xdna2

import "fmt"

// RhoDims are the model dimensions that [Rho] needs.
type RhoDims struct {
	Layers int
	Emb    int // width of a layer's input, d in the paper
	Query  int // heads times head_dim
	KV     int // key heads times head_dim
	FFN    int
}

// RhoForm selects the query width used to count work.
type RhoForm uint8

const (
	// RhoAsPublished uses d as the query width, as the paper does. That is wrong for Qwen3-0.6B and
	// Qwen3-4B.
	RhoAsPublished RhoForm = iota
	// RhoTrueWidth uses the actual width of the query and output projections.
	RhoTrueWidth
)

// String returns the form's name.
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

// params returns the number of weights in a layer's projections.
func (d RhoDims) params(f RhoForm) float64 {
	emb := float64(d.Emb)
	return 2*emb*d.query(f) + 2*emb*float64(d.KV) + 3*emb*float64(d.FFN)
}

// PrefillFLOPs returns the work of a prefill of seq tokens as rho counts it: projections and
// attention without savings from the mask, no LM head, no embedding.
func (d RhoDims) PrefillFLOPs(seq int, f RhoForm) float64 {
	s := float64(seq)
	return float64(d.Layers) * (2*s*d.params(f) + 2*s*s*d.query(f))
}

// DecodeBytes returns the work of decoding one token after seq others as rho counts it: BF16
// weights and cache, each read once.
func (d RhoDims) DecodeBytes(seq int, f RhoForm) float64 {
	return float64(d.Layers) * (2*d.params(f) + 4*float64(seq)*float64(d.KV))
}

// RhoRun is a measured or predicted run after seq positions.
type RhoRun struct {
	Dims         RhoDims
	Seq          int
	TTFT         float64 // seconds to the first token
	TokensPerSec float64
}

// RhoReference returns the reference run of the paper: Llama-3.2-1B at 2048 positions, 1.3 s and
// 10.8 tokens/s. That is 3.28 TFLOP/s in prefill and 21.7 GB/s in decode.
func RhoReference() RhoRun {
	return RhoRun{Dims: RhoDims{Layers: 16, Emb: 2048, Query: 2048, KV: 512, FFN: 8192}, Seq: 2048, TTFT: 1.3,
		TokensPerSec: 10.8}
}

// Rho returns the hardware utilization of a run relative to a reference run: FLOPs per second for
// prefill, bytes per second for decode, each divided by the reference's. It returns an error if a
// dimension or time is not positive.
//
// Source: arXiv 2606.07586, appendix A.
func Rho(run, reference RhoRun, form RhoForm) (prefill, decode float64, err error) {
	for _, r := range []RhoRun{run, reference} {
		d := r.Dims
		if min(d.Layers, d.Emb, d.Query, d.KV, d.FFN, r.Seq) <= 0 || !(r.TTFT > 0) || !(r.TokensPerSec > 0) {
			return 0, 0, fmt.Errorf("xdna2: rho: dimensions, length and speeds must be positive, got %+v", r)
		}
	}
	flops := func(r RhoRun) float64 { return r.Dims.PrefillFLOPs(r.Seq, form) / r.TTFT }
	bytes := func(r RhoRun) float64 { return r.Dims.DecodeBytes(r.Seq, form) * r.TokensPerSec }
	return flops(run) / flops(reference), bytes(run) / bytes(reference), nil
}
