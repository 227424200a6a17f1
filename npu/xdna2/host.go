package xdna2

import (
	"fmt"
	"time"
)

// Host is what the machine around the array costs: the program that prepares, starts and waits, and the copies through memory. Times are
// microseconds, rates GB/s. A profile is data: change its fields for another machine, and say in Note where the numbers come from.
type Host struct {
	Name string
	Note string // where the numbers come from, and what they hold for

	PrefillCall float64 // one dispatch in prefill: lock, run object, arguments, submission and wait
	DecodeCall  float64 // the same in decode
	Step        float64 // what the program itself spends on a step, of the array's or of its own: bindings, bookkeeping, waking its threads
	SyncCall    float64 // one sync of a buffer object, however small
	WriteRate   float64 // buffer object written and synced to the device
	ReadRate    float64 // synced back; 0 where other fields have it
	CopyRate    float64 // host permutations and the extraction of K and V: strided copies of BF16

	// The reference's runtime writes every dynamic argument at each dispatch, also what another program has just left on the device, and
	// zeros over what attention will write. A runtime that knows who wrote a buffer last writes what the host has changed.
	WritesInputs bool

	AllocRate   float64 // GB/s at which fresh buffer objects are made: mapped, zeroed, pinned
	FLOPS       float64 // GFLOP/s of the host in matrix products and attention over many rows
	ProductRate float64 // GB/s at which the host goes through the weights of a matrix product

	PrefillLayer float64 // other host work a layer of prefill
	PrefillOnce  float64 // a prefill: tokenise, embed, final norm
	DecodeOnce   float64 // a token: embed, final norm, choice of the token
	SplitLayer   float64 // a layer of decode whose FFN is not one program: norm, SwiGLU and residuals on the host

	// Decode attention on the host takes the longer of two: going through K and V at so many GB/s, and computing each query head of 64
	// elements at 2048 positions, which goes through all of them twice. 0 leaves one of them out.
	AttentionKV   float64
	AttentionHead float64

	IdleAfter float64 // idle time after which the next launch pays Wake
	Wake      float64

	// There is no price for a run whose predecessor ran in another context that is alive. Published pairs are 1.07 to 1.13 times slower
	// than either program by itself; the factors in Deployed come from programs that take turns, so that they have it already.
	Contexts    int     // hardware contexts that the program keeps alive, see the type of that name
	ContextLoad float64 // a hardware context made and its program loaded
	DeviceOpen  float64 // the device opened: a runtime that keeps nothing from call to call does it before each
}

// hostCommon are the costs of the machine that the source measured, whatever the program on it: Ryzen AI 9 HX 370, turbo, warm.
func hostCommon() Host {
	return Host{
		WriteRate: 16, // 8 MB in 0.5 ms, 20 MB in 1.3 ms: llama32_1b prefill
		CopyRate:  3.8,

		AllocRate:   3.5, // the source's estimate for first touch: 14 MB in 3 to 5 ms
		FLOPS:       100, // an assumption: FP32 products of a few cores
		ProductRate: 4,   // LM head on the host: 1.05 GB of FP32 weights in 258 ms

		IdleAfter:   10e6,
		Wake:        150e3,
		ContextLoad: 35e3, // of an ELF, measured on a Strix: Triton-XDNA #113. For an xclbin the source estimates 100 ms
		DeviceOpen:  11e3, // the same
	}
}

// HostAPriori is the reference's Python host as its published micro-measurements give it. Nothing in it is fitted to whole models.
func HostAPriori() Host {
	h := hostCommon()
	h.Name = "reference, a priori"
	h.Note = "Python host of mlir-air e972f2942, Ryzen AI 9 HX 370; from published figures of single steps (mostly Llama-3.2-1B), " +
		"nothing fitted to whole models"
	h.PrefillCall = 170 // 70 for lock, run object and arguments, 100 for the dispatch
	h.DecodeCall = 100
	h.PrefillLayer = 7000
	h.PrefillOnce = 25e3
	h.DecodeOnce = 1000
	h.SplitLayer = 130
	h.WritesInputs = true // and reads every result in place: 5 ms of a prefill of Llama-3.2-1B, which are part of PrefillLayer
	h.Contexts = 16       // it keeps all: models of 13 ELFs are in its table
	h.AttentionHead = 9   // 0.28 to 0.30 ms a layer of 32 heads of 64
	return h
}

// HostReference is the host behind the published whole-model figures, with two of its costs fitted to all nine models of the 2026-06
// table. It is for validation: nobody's Go program has these costs.
func HostReference() Host {
	h := HostAPriori()
	h.Name = "reference"
	h.Note = "Python host of mlir-air e972f2942, Ryzen AI 9 HX 370; host time a layer of prefill and a call of decode are fitted to all nine " +
		"models of the 2026-06 table, so that table is no test of it"
	h.PrefillLayer = fittedPrefillLayer
	h.DecodeCall = fittedDecodeCall
	return h
}

// HostNpukit is npukit itself as the host. What needs no NPU has been measured, by BenchmarkHostProfile of this package; the rest is assumed, field
// by field:
//
//	measured     Step, CopyRate, AllocRate, FLOPS, ProductRate, PrefillOnce, DecodeOnce, SplitLayer, AttentionKV, AttentionHead
//	published    WriteRate, ReadRate, SyncCall, IdleAfter, Wake: of the Python host on a Ryzen AI 9 HX 370; ContextLoad, DeviceOpen: of a Strix
//	assumed      PrefillCall and DecodeCall: the published dispatch, of which nobody has said how much is Python
//	chosen       Contexts
//
// The machine of the measurements has two cores and no NPU. A Ryzen AI has more of both cores and memory bandwidth, so that the host's share
// is likely to be smaller there.
func HostNpukit() Host {
	h := hostCommon()
	h.Name = "npukit"
	h.Note = "calls, syncs and contexts from published figures (Ryzen AI 9 HX 370, Strix); npukit's own work measured on 2026-11-21 on two cores of a virtual " +
		"Intel Xeon, which is no Ryzen AI (go test ./npu/xdna2 -run xxx -bench HostProfile -benchtime 1x)"
	h.PrefillCall = 100 // the source's dispatch without its Python
	h.DecodeCall = 100
	h.ReadRate = 84 // 8 MB after o_ffn of Llama-3.2-1B in 0.1 ms: results are seen in place, a sync only drops them from caches
	h.SyncCall = 5  // rms_gemv_rope of Llama-3.2-1B: 10 us for reading three small results, 20 us for writing three small inputs
	h.Contexts = NPU2().Contexts
	h.Step = 2.2
	h.CopyRate = 3.6    // the slowest: q of 32 heads to head-first. Others to 18: k of two heads
	h.AllocRate = 2.1   // without pinning, which the kernel driver does
	h.FLOPS = 118       // attention of a prompt; products reach 250
	h.ProductRate = 24  // BF16 weights
	h.PrefillOnce = 600 // 2048 tokens of text encoded, and embedded 2048 wide
	h.DecodeOnce = 230  // a vocabulary of 128256: logits to FP32, and the choice
	h.SplitLayer = 10   // norm, SwiGLU and residuals of Qwen2.5-3B
	h.AttentionKV = 11  // Llama-3.2-1B and -3B, SmolLM2-1.7B
	h.AttentionHead = 8 // Qwen2.5: few key heads, so that arithmetic binds
	return h
}

// HostProfile finds a profile by its name: "npukit" or "reference".
func HostProfile(name string) (Host, error) {
	for _, h := range []Host{HostNpukit(), HostReference()} {
		if h.Name == name {
			return h, nil
		}
	}
	return Host{}, fmt.Errorf("xdna2: no host profile is called %q: want npukit or reference", name)
}

// Write is the time to write n bytes of buffer objects and sync them to the device, in microseconds.
func (h Host) Write(n int) float64 { return at(n, h.WriteRate) }

// Read is the time to sync n bytes back, in microseconds.
func (h Host) Read(n int) float64 { return at(n, h.ReadRate) }

// Permute is the time for host code to bring n bytes of activations or caches into another order, in microseconds.
func (h Host) Permute(n int) float64 { return at(n, h.CopyRate) }

// Allocate is the time to make buffer objects of n bytes, in microseconds.
func (h Host) Allocate(n int) float64 { return at(n, h.AllocRate) }

// Compute is the time of a matrix product or of attention over many rows on the host, in microseconds: the slower of its operations and of
// going through so many bytes of weights.
func (h Host) Compute(flops float64, weights int) float64 {
	t := at(weights, h.ProductRate)
	if h.FLOPS > 0 {
		t = max(t, flops/(h.FLOPS*1e3))
	}
	return t
}

// Attention is the time of decode attention on the host for one layer, in microseconds: one query row, so many heads of headDim over so
// many key heads, and keys positions.
func (h Host) Attention(heads, kvHeads, headDim, keys int) float64 {
	return max(at(4*kvHeads*headDim*keys, h.AttentionKV), h.AttentionHead*float64(heads)*float64(headDim)/64*float64(keys)/2048)
}

// WakeUp is what the next launch pays after the array has been idle for so long, in microseconds.
func (h Host) WakeUp(idle time.Duration) float64 {
	if h.IdleAfter > 0 && idle >= micros(h.IdleAfter) {
		return h.Wake
	}
	return 0
}

// at is the time for n bytes at a rate in GB/s, in microseconds; a rate of 0 means that nothing is moved.
func at(n int, rate float64) float64 {
	if rate == 0 {
		return 0
	}
	return float64(n) / (rate * 1e3)
}

// The globals fitted to the nine models of the 2026-06 table; a test holds that the fit gives them.
const (
	fittedFactor       = 1.049
	fittedPrefillLayer = 6485  // us
	fittedDecodeCall   = 215.3 // us
)
