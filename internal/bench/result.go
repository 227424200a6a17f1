package bench

import (
	"slices"

	"github.com/npukit/npukit/internal/rho"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu/cpu"
)

// Result is the result of one test. Its JSON form is one flat object.
type Result struct {
	Model string `json:"model"`
	Name  string `json:"test"` // "pp512", "tg64", "tg64@1024", "tg64 x 8"
	Speed
	Setup
	Roofline

	Together *Together `json:"together,omitempty"` // only for concurrent sessions
}

// Speed is the tokens per second of a test.
type Speed struct {
	Tokens        int       `json:"tokens"`
	Depth         int       `json:"depth"` // tokens in the context before the test
	TokensPerS    float64   `json:"tokens_per_s"`
	MinTokensPerS float64   `json:"min_tokens_per_s"`
	MaxTokensPerS float64   `json:"max_tokens_per_s"`
	Predicted     bool      `json:"predicted,omitempty"` // by the virtual device, not measured
	Samples       []float64 `json:"samples"`             // tokens/s, in the order of the repetitions
	Repetitions   int       `json:"repetitions"`
}

// Setup describes the machine and the model of a test. It is the same for all tests of a model.
type Setup struct {
	Device      string  `json:"device"`
	Kernels     string  `json:"kernels"`
	Threads     int     `json:"threads"`
	DType       string  `json:"dtype"` // of the weights in the file
	Activations string  `json:"activations"`
	Parameters  int64   `json:"parameters"`
	Machine     string  `json:"machine"`
	LoadSeconds float64 `json:"load_s"` // to open the model and its tokenizer
	// PeakRSS is the peak RSS of the process over all tests, with mapped weights and without the
	// meter's buffers. It is 0 if the system does not report it.
	PeakRSS int64 `json:"peak_rss_bytes"`
}

// Roofline compares a test with the limits of the machine.
type Roofline struct {
	ReadBandwidth  float64  `json:"read_bandwidth_bytes_per_s"` // median of Limits
	PeakFLOPsPerS  float64  `json:"peak_flops_per_s"`           // median of Limits, for BF16 products
	Limits         []Limits `json:"beside,omitempty"`           // measured around each sample
	BytesPerToken  float64  `json:"bytes_per_token"`            // weights and KV cache that must be read
	StoredPerToken float64  `json:"stored_bytes_per_token"`     // the same without weight compression
	// BandwidthShare is the median over the samples of the bytes read per second, divided by the
	// bandwidth around the sample.
	BandwidthShare float64 `json:"bandwidth_share"`
	// Rho is the paper's measure of utilization. 1 is the published Llama-3.2-1B on an NPU, with
	// the true width of q.
	Rho           float64 `json:"rho"`
	FLOPsPerToken float64 `json:"flops_per_token"`
	FLOPsPerS     float64 `json:"flops_per_s"`
	PeakShare     float64 `json:"peak_share"` // as BandwidthShare, of the arithmetic peak
}

// result returns the result of a test in that many sessions, before it runs.
func (b *Bench) result(name string, t Test, sessions int) Result {
	r := Result{Name: name}
	r.Tokens, r.Depth, r.Repetitions, r.Predicted = sessions*t.Tokens, t.Depth, b.Reps, b.virtual()
	c, n := costOf(b.Model.Plan(), b.Device.Info(), t).times(sessions), float64(r.Tokens)
	r.BytesPerToken, r.StoredPerToken, r.FLOPsPerToken = c.bytes/n, c.stored/n, c.flops/n
	return r
}

// Finish computes the figures that follow from the samples.
func (r *Result) Finish() {
	r.TokensPerS = median(r.Samples)
	r.MinTokensPerS, r.MaxTokensPerS = slices.Min(r.Samples), slices.Max(r.Samples)
	r.FLOPsPerS = r.FLOPsPerToken * r.TokensPerS
	if len(r.Limits) == 0 {
		return // npukit estimate has the rooflines of NPUs
	}
	var reads, peaks, readShares, peakShares []float64
	for i, l := range r.Limits {
		read, peak := l.mean()
		reads, peaks = append(reads, read), append(peaks, peak)
		readShares = append(readShares, r.BytesPerToken*r.Samples[i]/read)
		peakShares = append(peakShares, r.FLOPsPerToken*r.Samples[i]/peak)
	}
	r.ReadBandwidth, r.PeakFLOPsPerS = median(reads), median(peaks)
	r.BandwidthShare, r.PeakShare = median(readShares), median(peakShares)
}

// SetRho computes r.Rho for a prompt in an empty context, or for decode at half of the generated
// tokens. A prompt at a depth has no rho. Call it after Finish, for a single session.
func (r *Result) SetRho(p *plan.Plan) error {
	positions, ttft, speed := r.Depth+max(1, r.Tokens/2), 1.0, r.TokensPerS
	prompt := r.Name[:2] == "pp"
	if prompt {
		positions, ttft, speed = r.Tokens, float64(r.Tokens)/r.TokensPerS, 1
	}
	if prompt && r.Depth > 0 {
		return nil
	}
	m := p.Model
	run := rho.Run{Dims: rho.Dims{Layers: m.Layers, Emb: m.Hidden, Query: m.Heads * m.HeadDim,
		KV: m.KVHeads * m.HeadDim, FFN: m.FFN}, Seq: positions, TTFT: ttft, TokensPerSec: speed}
	prefill, decode, err := rho.Of(run, rho.Reference(), rho.TrueWidth)
	if err != nil {
		return err
	}
	if r.Rho = decode; prompt {
		r.Rho = prefill
	}
	return nil
}

// MeasuredLimits returns every measured bandwidth and arithmetic peak.
func MeasuredLimits(results []Result) (reads, peaks []float64) {
	for _, r := range results {
		for _, each := range r.Limits {
			for _, l := range []cpu.Limits{each.Before, each.After} {
				reads, peaks = append(reads, l.ReadBandwidth), append(peaks, l.PeakFLOPS)
			}
		}
	}
	return reads, peaks
}

func median(samples []float64) float64 {
	s := slices.Sorted(slices.Values(samples))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
