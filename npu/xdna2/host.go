package xdna2

import (
	"fmt"
	"time"
)

// Host is the cost profile of the host: the runtime that prepares, starts and waits for programs,
// and memory copies. Times are microseconds, rates GB/s. Adapt the fields for another machine and
// set Note to the source of the numbers.
type Host struct {
	Name string
	Note string // source and conditions of the numbers

	PrefillCall float64 // dispatch in prefill: lock, run object, arguments, submission and wait
	DecodeCall  float64 // the same in decode
	Step        float64 // runtime overhead per step, on either side: bindings, bookkeeping, waking threads
	SyncCall    float64 // fixed cost of syncing a buffer object
	WriteRate   float64 // writing a buffer object and syncing it to the device
	ReadRate    float64 // syncing back; 0 if other fields include it
	CopyRate    float64 // strided BF16 copies: host permutations, extraction of K and V

	// WritesInputs is set for the reference's runtime, which writes every dynamic argument at each
	// dispatch, including values that another program left on the device, and zeros over
	// attention's output. A runtime that tracks writers writes only host changes.
	WritesInputs bool

	AllocRate   float64 // allocating buffer objects: map, zero, pin
	FLOPS       float64 // GFLOP/s of host matrix products and attention over many rows
	ProductRate float64 // reading the weights of a host matrix product

	PrefillLayer float64 // other host work per layer of prefill
	PrefillOnce  float64 // per prefill: tokenize, embed, final norm
	DecodeOnce   float64 // per token: embed, final norm, sampling
	SplitLayer   float64 // per decode layer with a split FFN: norm, SwiGLU and residuals on the host

	// Decode attention on the host takes the larger of two times: reading K and V at AttentionKV
	// GB/s, and AttentionHead us per query head of 64 elements at 2048 positions. Zero disables
	// either.
	AttentionKV   float64
	AttentionHead float64

	IdleAfter float64 // idle time after which the next launch takes Wake longer
	Wake      float64

	// Switching between open contexts has no price here. Published pairs of programs run 1.07 to
	// 1.13 times slower than alone; the factors in Deployed come from programs that run in turns
	// and already include it.
	Contexts    int     // hardware contexts kept open
	ContextLoad float64 // creating a hardware context and loading its program
	DeviceOpen  float64 // opening the device; a runtime without state does it before each call
}

// hostCommon returns the costs of the source's machine that do not depend on the runtime: Ryzen AI
// 9 HX 370, turbo, warm.
func hostCommon() Host {
	return Host{
		WriteRate: 16, // 8 MB in 0.5 ms, 20 MB in 1.3 ms: llama32_1b prefill
		CopyRate:  3.8,

		AllocRate:   3.5, // the source's estimate for first touch: 14 MB in 3 to 5 ms
		FLOPS:       100, // an assumption: FP32 products of a few cores
		ProductRate: 4,   // LM head on the host: 1.05 GB of FP32 weights in 258 ms

		IdleAfter:   10e6,
		Wake:        150e3,
		ContextLoad: 35e3, // ELF on a Strix, Triton-XDNA #113; the source estimates 100 ms for an xclbin
		DeviceOpen:  11e3, // the same
	}
}

// hostAPriori returns the reference's Python host as its published micro-measurements describe it.
// Nothing is fitted to whole models.
func hostAPriori() Host {
	h := hostCommon()
	h.Name = "reference, a priori"
	h.Note = "Python host of mlir-air e972f2942, Ryzen AI 9 HX 370; from published figures of single steps (mostly " +
		"Llama-3.2-1B), nothing fitted to whole models"
	h.PrefillCall = 170 // 70 for lock, run object and arguments, 100 for the dispatch
	h.DecodeCall = 100
	h.PrefillLayer = 7000
	h.PrefillOnce = 25e3
	h.DecodeOnce = 1000
	h.SplitLayer = 130
	h.WritesInputs = true // it reads results in place: 5 ms of a prefill of Llama-3.2-1B, in PrefillLayer
	h.Contexts = 16       // it never closes one; its table has models of 13 ELFs
	h.AttentionHead = 9   // 0.28 to 0.30 ms per layer of 32 heads of 64
	return h
}

// hostReference returns the host of the published whole-model figures, with two costs fitted to all
// nine models of the 2026-06 table.
func hostReference() Host {
	h := hostAPriori()
	h.Name = "reference"
	h.Note = "Python host of mlir-air e972f2942, Ryzen AI 9 HX 370; host time per layer of prefill and per decode " +
		"call are fitted to all nine models of the 2026-06 table, so that table does not test it"
	h.PrefillLayer = fittedPrefillLayer
	h.DecodeCall = fittedDecodeCall
	return h
}

// HostNpukit returns npukit itself as the host. BenchmarkHostProfile measures the fields that need
// no NPU; the others come from published figures or are assumed:
//
//	measured     Step, CopyRate, AllocRate, FLOPS, ProductRate, PrefillOnce, DecodeOnce, SplitLayer,
//	             AttentionKV, AttentionHead
//	published    WriteRate, ReadRate, SyncCall, IdleAfter, Wake: Python host on a Ryzen AI 9 HX 370;
//	             ContextLoad, DeviceOpen: Strix
//	assumed      PrefillCall, DecodeCall: the published dispatch; its share of Python is unknown
//	chosen       Contexts
//
// The measurements ran on two cores without an NPU. A Ryzen AI has more cores and memory bandwidth,
// so its host share is likely smaller.
func HostNpukit() Host {
	h := hostCommon()
	h.Name = "npukit"
	h.Note = "calls, syncs and contexts from published figures (Ryzen AI 9 HX 370, Strix); npukit's own work " +
		"measured on 2026-11-21 on two cores of a virtual Intel Xeon, not a Ryzen AI (go test ./npu/xdna2 -run xxx " +
		"-bench HostProfile -benchtime 1x)"
	h.PrefillCall = 100 // the source's dispatch without its Python
	h.DecodeCall = 100
	h.ReadRate = 84 // 8 MB after o_ffn of Llama-3.2-1B in 0.1 ms: a sync only invalidates caches
	h.SyncCall = 5  // rms_gemv_rope of Llama-3.2-1B: 10 us to read three small results, 20 us to write three
	h.Contexts = NPU2().Contexts
	h.Step = 2.2
	h.CopyRate = 3.6    // slowest case: q of 32 heads to head-first; k of two heads reaches 18
	h.AllocRate = 2.1   // without pinning by the kernel driver
	h.FLOPS = 118       // prompt attention; matrix products reach 250
	h.ProductRate = 24  // BF16 weights
	h.PrefillOnce = 600 // encode 2048 tokens of text, embed them 2048 wide
	h.DecodeOnce = 230  // vocabulary of 128256: logits to FP32, sampling
	h.SplitLayer = 10   // norm, SwiGLU and residuals of Qwen2.5-3B
	h.AttentionKV = 11  // Llama-3.2-1B and -3B, SmolLM2-1.7B
	h.AttentionHead = 8 // Qwen2.5: few key heads, so it is compute-bound
	return h
}

// HostProfile returns the profile with the given name: "npukit", see [HostNpukit], or "reference",
// the Python host of the published whole-model figures. Two costs of the latter are fitted to all
// nine models of the 2026-06 table. Use it for validation only: no Go program has these costs.
func HostProfile(name string) (Host, error) {
	for _, h := range []Host{HostNpukit(), hostReference()} {
		if h.Name == name {
			return h, nil
		}
	}
	return Host{}, fmt.Errorf("xdna2: unknown host profile %q, want npukit or reference", name)
}

// Write returns the time to write n bytes of buffer objects and sync them to the device.
func (h Host) Write(n int) float64 { return at(n, h.WriteRate) }

// Read returns the time to sync n bytes back.
func (h Host) Read(n int) float64 { return at(n, h.ReadRate) }

// Permute returns the time of a host permutation of n bytes of activations or caches.
func (h Host) Permute(n int) float64 { return at(n, h.CopyRate) }

// Allocate returns the time to allocate buffer objects of n bytes.
func (h Host) Allocate(n int) float64 { return at(n, h.AllocRate) }

// Compute returns the time of a matrix product or of attention over many rows on the host: the
// larger of the time for its FLOPs and for reading the weights, in bytes.
func (h Host) Compute(flops float64, weights int) float64 {
	t := at(weights, h.ProductRate)
	if h.FLOPS > 0 {
		t = max(t, flops/(h.FLOPS*1e3))
	}
	return t
}

// Attention returns the time of decode attention on the host for one layer and one query row.
func (h Host) Attention(heads, kvHeads, headDim, keys int) float64 {
	return max(at(4*kvHeads*headDim*keys, h.AttentionKV),
		h.AttentionHead*float64(heads)*float64(headDim)/64*float64(keys)/2048)
}

// WakeUp returns the extra time of the next launch after the array was idle.
func (h Host) WakeUp(idle time.Duration) float64 {
	if h.IdleAfter > 0 && idle >= micros(h.IdleAfter) {
		return h.Wake
	}
	return 0
}

// at returns the time for n bytes at a rate in GB/s, or 0 if the rate is 0.
func at(n int, rate float64) float64 {
	if rate == 0 {
		return 0
	}
	return float64(n) / (rate * 1e3)
}

// Constants fitted to the nine models of the 2026-06 table. A test in internal/validation checks
// them against the fit.
const (
	fittedFactor       = 1.049
	fittedPrefillLayer = 6485  // us
	fittedDecodeCall   = 208.3 // us
)
