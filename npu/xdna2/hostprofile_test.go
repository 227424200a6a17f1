package xdna2_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/tokenizer"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/npu/sim"
)

// BenchmarkHostProfile measures the fields of [xdna2.HostNpukit]: the runtime's overhead per step,
// and the speed of the software device on the steps that a plan runs on the host. Each metric is
// named after its field. Working sets rotate so that they come from memory, as in a model; the
// fastest round counts.
//
//	go test ./npu/xdna2 -run xxx -bench HostProfile -benchtime 1x
//
// It does not measure costs that involve an NPU: submission and wait in the kernel driver, syncs,
// wake-up.
func BenchmarkHostProfile(b *testing.B) {
	if prev := runtime.GOMAXPROCS(0); prev < runtime.NumCPU()+1 {
		runtime.GOMAXPROCS(runtime.NumCPU() + 1)
		b.Cleanup(func() { runtime.GOMAXPROCS(prev) })
	}
	d, err := cpu.Open(nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := d.Close(); err != nil {
			b.Error(err)
		}
	})
	b.Logf("%s, %d CPUs, %s", processor(), runtime.NumCPU(), d.Info().Name)

	const seq = 2048
	for _, a := range []struct {
		model                  string
		heads, kvHeads, dim, n int
	}{
		{"Llama-3.2-1B", 32, 8, 64, 16},
		{"SmolLM2-1.7B", 32, 32, 64, 8},
		{"Qwen2.5-0.5B", 14, 2, 64, 24},
		{"Llama-3.2-3B", 24, 8, 128, 8},
		{"Qwen2.5-3B", 16, 2, 128, 16},
	} {
		b.Run("AttentionKV/"+a.model, func(b *testing.B) {
			o := op.Attention{Rows: 1, Heads: a.heads, KVHeads: a.kvHeads, HeadDim: a.dim, Cached: true}
			t := fastest(b, d, o, a.n, npu.Segment{Rows: 1, Pos: seq - 1})
			b.ReportMetric(float64(4*a.kvHeads*a.dim*seq)/t.Seconds()/1e9, "GB/s")
		})
	}
	for _, c := range []struct {
		name  string
		o     op.Op
		bytes int
	}{
		{"q of Llama-3.2-1B to head-first", op.Permute{Shape: []int{seq, 32, 64}, Perm: []int{1, 0, 2}},
			2 * seq * 2048},
		{"k of Qwen2.5-3B to head-first", op.Permute{Shape: []int{seq, 2, 128}, Perm: []int{1, 0, 2}}, 2 * seq * 256},
		{"attention of Qwen3-4B to rows", op.Permute{Shape: []int{64, seq, 64}, Perm: []int{1, 0, 2}}, 2 * seq * 4096},
		{"k of Llama-3.2-1B into its cache", op.KVWrite{Rows: seq, KVHeads: 8, HeadDim: 64}, 2 * seq * 512},
		{"k of SmolLM2-1.7B into its cache", op.KVWrite{Rows: seq, KVHeads: 32, HeadDim: 64}, 2 * seq * 2048},
	} {
		b.Run("CopyRate/"+c.name, func(b *testing.B) {
			t := fastest(b, d, c.o, 8, npu.Segment{Rows: seq})
			b.ReportMetric(float64(c.bytes)/t.Seconds()/1e9, "GB/s")
		})
	}
	b.Run("ProductRate", func(b *testing.B) { // an eighth of the LM head of Llama-3.2-1B
		const n = 128256 / 8
		t := fastest(b, d, op.MatMul{M: 1, K: 2048, N: n, TransB: true}, 4, npu.Segment{})
		b.ReportMetric(2*2048*n/t.Seconds()/1e9, "GB/s")
	})
	for _, c := range []struct {
		name string
		o    op.Op
		seg  npu.Segment
		n    int
	}{
		{"product of 512 rows", op.MatMul{M: 512, K: 2048, N: 2048, TransB: true}, npu.Segment{}, 2},
		{"attention of a prompt", op.Attention{Rows: seq, Heads: 32, KVHeads: 8, HeadDim: 64}, npu.Segment{}, 1},
	} {
		b.Run("FLOPS/"+c.name, func(b *testing.B) {
			t := fastest(b, d, c.o, c.n, c.seg)
			b.ReportMetric(c.o.FLOPs(op.Size{Rows: seq})/t.Seconds()/1e9, "GFLOP/s")
		})
	}
	for _, c := range []struct {
		model       string
		hidden, ffn int
	}{{"Qwen2.5-0.5B", 896, 4864}, {"Llama-3.2-3B", 3072, 8192}, {"Qwen2.5-3B", 2048, 11008}} {
		b.Run("SplitLayer/"+c.model, func(b *testing.B) {
			t := fastest(b, d, op.Add{Rows: 1, Width: c.hidden}, 8, npu.Segment{})
			t += fastest(b, d, op.RMSNorm{Rows: 1, Width: c.hidden, Eps: 1e-6}, 8, npu.Segment{})
			t += fastest(b, d, op.SiLUMul{Rows: 1, Width: c.ffn}, 8, npu.Segment{})
			t += fastest(b, d, op.Add{Rows: 1, Width: c.hidden}, 8, npu.Segment{})
			b.ReportMetric(us(t), "us")
		})
	}
	b.Run("PrefillOnce/embedding of 2048", func(b *testing.B) {
		t := fastest(b, d, op.Embed{Rows: seq, Vocab: 32768, Width: 2048}, 4, npu.Segment{})
		b.ReportMetric(us(t), "us")
	})
	for _, family := range []string{"llama-3", "qwen3"} {
		b.Run("PrefillOnce/tokens of 2048, "+family, func(b *testing.B) {
			coder, err := tokenizer.Open(filepath.Join(testenv.Shared(b, "tokenizers/"+family), "tokenizer.json.gz"))
			if err != nil {
				b.Fatal(err)
			}
			data, err := os.ReadFile(testenv.Shared(b, "text/war-and-peace.txt"))
			if err != nil {
				b.Fatal(err)
			}
			text := string(data[2<<20:][:8<<10])
			best := time.Hour
			for range 20 {
				began := time.Now()
				ids, err := coder.Encode(text, nil)
				if err != nil {
					b.Fatal(err)
				}
				best = min(best, time.Since(began)*seq/time.Duration(len(ids)))
			}
			b.ReportMetric(us(best), "us")
		})
	}
	b.Run("AllocRate", func(b *testing.B) {
		const bytes, page = 64 << 20, 4 << 10
		best := time.Hour
		for range 8 {
			began := time.Now()
			x := alloc(b, d, bytes)
			for i, mem := 0, x.Bytes(); i < bytes; i += page {
				mem[i] = 1
			}
			best = min(best, time.Since(began))
			if err := x.Close(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(bytes/best.Seconds()/1e9, "GB/s")
	})
	b.Run("Step", func(b *testing.B) {
		few, many := runtimeToken(b, 2, 512), runtimeToken(b, 26, 512)
		b.ReportMetric(us(many.time-few.time)/float64(many.steps-few.steps), "us")
	})
	b.Run("DecodeOnce", func(b *testing.B) { // with the vocabulary of Llama 3
		b.ReportMetric(us(runtimeToken(b, 1, 128256).time), "us")
	})
}

// tokenCost is the time of a token on a virtual array that computes nothing.
type tokenCost struct {
	time  time.Duration
	steps int
}

// runtimeToken returns the time of a token of a model so small that arithmetic is negligible: the
// rest is the runtime's overhead per step and token.
func runtimeToken(b *testing.B, layers, vocab int) tokenCost {
	dir := b.TempDir()
	spec := ckptgen.Spec{
		Family: "llama", Layers: layers, Hidden: 256, Heads: 4, KVHeads: 2, HeadDim: 64, FFN: 512,
		Vocab: vocab, Context: 512, Tie: true,
	}
	if err := ckptgen.Write(dir, spec, 7); err != nil {
		b.Fatal(err)
	}
	d, err := sim.Open(&sim.Options{Timing: true})
	if err != nil {
		b.Fatal(err)
	}
	m, err := model.Open(b.Context(), d, dir, nil)
	if err != nil {
		b.Fatal(err)
	}
	t := tokenCost{time.Hour, len(m.Plan().Decode.Steps) + len(m.Plan().Decode.Head)}
	for range 8 {
		var last time.Time
		opts := &model.GenerateOptions{MaxTokens: 48, IgnoreEOS: true}
		for _, err := range m.Generate(b.Context(), model.IDs([]int32{1, 2, 3, 4}), opts) {
			if err != nil {
				b.Fatal(err)
			}
			now := time.Now()
			if !last.IsZero() {
				t.time = min(t.time, now.Sub(last))
			}
			last = now
		}
	}
	if err := m.Close(); err != nil {
		b.Error(err)
	}
	if err := d.Close(); err != nil {
		b.Error(err)
	}
	return t
}

// fastest returns the time of one op on the software device: the best of several rounds of n runs,
// each with its own operands.
func fastest(b *testing.B, d npu.Device, o op.Op, n int, s npu.Segment) time.Duration {
	ctx := context.Background()
	p := npu.NewProgram("host")
	size := op.Size{Rows: s.Rows, Capacity: 2048}
	var args []npu.View
	for _, operand := range o.Operands() {
		kind, typ := npu.In, dtype.BF16
		switch {
		case operand.Types[0] == dtype.I32:
			typ = dtype.I32
		case operand.Read && operand.Write || operand.Name == "kcache" || operand.Name == "vcache":
			kind = npu.State
		case operand.Write:
			kind = npu.Out
		}
		p.Arg(kind, operand.Name, typ, operand.Shape...)
		args = append(args, npu.View{Arg: len(args)})
	}
	p.Launches = append(p.Launches, npu.Launch{Name: "x", Op: o, Args: args})
	exec, err := d.Load(ctx, p)
	if err != nil {
		b.Fatal(err)
	}
	defer exec.Close()
	var runs []npu.Run
	for range n {
		r := npu.Run{Exec: exec, Args: make([]npu.Buffer, len(p.Args))}
		seg := s
		for i, a := range p.Args {
			x := alloc(b, d, a.Type.Bytes(size.Elements(a.Shape)))
			fill(x, a.Type)
			defer x.Close()
			if a.Kind == npu.State {
				seg.State = append(seg.State, x)
			} else {
				r.Args[i] = x
			}
		}
		if seg.Rows > 0 {
			r.Segments = []npu.Segment{seg}
		}
		runs = append(runs, r)
	}
	best := time.Hour
	for round, began := 0, time.Now(); round < 4 || time.Since(began) < 700*time.Millisecond; round++ {
		for i := range runs {
			began := time.Now()
			if err := d.Submit(ctx, runs[i:i+1]); err != nil {
				b.Fatal(err)
			}
			best = min(best, time.Since(began))
		}
	}
	return best
}

// fill writes numbers that every kernel accepts.
func fill(x npu.Buffer, t dtype.Type) {
	if t != dtype.BF16 {
		return // zeros: the first row of a table
	}
	v := dtype.BFloat16s(x.Bytes())
	for i := range v {
		v[i] = dtype.BFloat16(0x3c00 + i%64)
	}
}

func alloc(b *testing.B, d npu.Device, bytes int) npu.Buffer {
	x, err := d.Alloc(context.Background(), bytes)
	if err != nil {
		b.Fatal(err)
	}
	return x
}

func us(t time.Duration) float64 { return float64(t) / float64(time.Microsecond) }

// processor returns the CPU's name on Linux, or else the platform.
func processor() string {
	data, _ := os.ReadFile(filepath.Join("/proc", "cpuinfo"))
	for _, line := range strings.Split(string(data), "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return fmt.Sprintf("%s/%s", runtime.GOOS, runtime.GOARCH)
}
