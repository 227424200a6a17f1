package cpu

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// benchDevice opens a device with the default options and NPUKIT_THREADS threads.
func benchDevice(b *testing.B) *Device {
	if prev := runtime.GOMAXPROCS(0); prev < runtime.NumCPU()+1 {
		runtime.GOMAXPROCS(runtime.NumCPU() + 1)
		b.Cleanup(func() { runtime.GOMAXPROCS(prev) })
	}
	threads, _ := strconv.Atoi(os.Getenv("NPUKIT_THREADS")) // 0, all cores, when it is not set
	return open(b, &Options{Threads: threads})
}

// BenchmarkMatMul reports, for the products of SmolLM2-135M and Llama-3.2-1B, the bytes of weights
// read and the arithmetic done in a second. Each shape
// goes through many different matrices, as in a model, so that little is in a cache from the round
// before. The fastest round counts.
func BenchmarkMatMul(b *testing.B) {
	shapes := []struct {
		model string
		k, n  int
	}{
		{"SmolLM2-135M q/o", 576, 576}, {"SmolLM2-135M kv", 576, 192}, {"SmolLM2-135M gate", 576, 1536},
		{"SmolLM2-135M down", 1536, 576},
		{"SmolLM2-135M head", 576, 49152},
		{"Llama-3.2-1B q/o", 2048, 2048}, {"Llama-3.2-1B kv", 2048, 512}, {"Llama-3.2-1B gate", 2048, 8192},
		{"Llama-3.2-1B down", 8192, 2048},
	}
	ctx := context.Background()
	d := benchDevice(b)
	const bytes = 512 << 20 // of weights in a round
	weights := alloc(b, d, bytes)
	fill := dtype.BFloat16s(weights.Bytes())
	for i := range fill {
		fill[i] = dtype.BFloat16(0x3c00 + i%64)
	}
	meter, err := d.NewMeter()
	if err != nil {
		b.Fatal(err)
	}
	defer meter.Close()
	limits, err := meter.Measure(ctx)
	if err != nil {
		b.Fatal(err)
	}
	bandwidth, peak := limits.ReadBandwidth, limits.PeakFLOPS
	b.Logf("%s: reads %.1f GB/s, %.0f GFLOP/s at most", d.Info().Name, bandwidth/1e9, peak/1e9)
	for _, s := range shapes {
		for _, m := range []int{1, 4, 8, 32, 64, 128, 512} {
			b.Run(fmt.Sprintf("%s/M=%d", s.model, m), func(b *testing.B) {
				p := npu.NewProgram("matmul")
				count := min(64, bytes/(2*s.k*s.n))
				if m > 8 {
					count = min(count, max(1, 1024/m))
				}
				w := p.In("w", bf, count*s.n, s.k)
				a := p.In("a", bf, m, s.k)
				y := p.Scratch("y", bf, m, s.n)
				for i := range count {
					p.Launch(fmt.Sprint(i), op.MatMul{M: m, K: s.k, N: s.n, TransB: true}, a, w.Rows(i*s.n, s.n), y)
				}
				exec, err := d.Load(ctx, p)
				if err != nil {
					b.Fatal(err)
				}
				run := []npu.Run{{Exec: exec, Args: []npu.Buffer{weights, alloc(b, d, 2*m*s.k), nil}}}
				best := time.Hour // of all rounds: others may be at work on the machine
				for b.Loop() {
					began := time.Now()
					if err := d.Submit(ctx, run); err != nil {
						b.Fatal(err)
					}
					best = min(best, time.Since(began))
				}
				rate := float64(count) / best.Seconds()
				read, flops := rate*float64(2*s.k*s.n), rate*float64(2*m*s.k*s.n)
				b.ReportMetric(read/1e9, "GB/s")
				b.ReportMetric(100*read/bandwidth, "%read")
				b.ReportMetric(flops/1e9, "GFLOP/s")
				b.ReportMetric(100*flops/peak, "%peak")
			})
		}
	}
}

// BenchmarkAttention reports the time of cached attention for prefill and decode at layer shapes of
// SmolLM2-135M and Llama-3.2-1B, and the throughput of its two products, counting only unmasked
// positions. The fastest round counts.
func BenchmarkAttention(b *testing.B) {
	d := benchDevice(b)
	ctx := context.Background()
	for _, s := range []struct {
		model              string
		heads, kvHeads, hd int
	}{{"SmolLM2-135M", 9, 3, 64}, {"Llama-3.2-1B", 32, 8, 64}} {
		for _, at := range []struct{ past, rows int }{{0, 32}, {0, 512}, {1536, 512}, {32, 1}, {1024, 1}} {
			b.Run(fmt.Sprintf("%s/%d@%d", s.model, at.rows, at.past), func(b *testing.B) {
				const layers = 8
				p := npu.NewProgram("attention")
				var args []npu.Buffer
				rng := rand.New(rand.NewPCG(1, 2))
				filled := func(t dtype.Type, elements int) npu.Buffer {
					buf := alloc(b, d, t.Bytes(elements))
					encode(buf.Bytes(), t, random(rng, elements))
					return buf
				}
				q, y := p.In("q", f32, op.Rows, s.heads*s.hd), p.Out("y", bf, op.Rows, s.heads*s.hd)
				args = append(args, filled(f32, at.rows*s.heads*s.hd), alloc(b, d, bf.Bytes(at.rows*s.heads*s.hd)))
				var state []npu.Buffer
				for i := range layers {
					k := p.State(fmt.Sprintf("k.%d", i), bf, s.kvHeads, op.Capacity, s.hd)
					v := p.State(fmt.Sprintf("v.%d", i), bf, s.kvHeads, op.Capacity, s.hd)
					p.Launch(fmt.Sprint(i), op.Attention{Rows: op.Rows, Heads: s.heads, KVHeads: s.kvHeads,
						HeadDim: s.hd, Cached: true}, q, k, v, y)
					for range 2 {
						state = append(state, filled(bf, s.kvHeads*(at.past+at.rows)*s.hd))
						args = append(args, nil)
					}
				}
				exec, err := d.Load(ctx, p)
				if err != nil {
					b.Fatal(err)
				}
				run := []npu.Run{{Exec: exec, Args: args,
					Segments: []npu.Segment{{Rows: at.rows, Pos: at.past, State: state}}}}
				best := time.Hour
				for b.Loop() {
					began := time.Now()
					if err := d.Submit(ctx, run); err != nil {
						b.Fatal(err)
					}
					best = min(best, time.Since(began))
				}
				seen := at.rows*at.past + at.rows*(at.rows+1)/2
				b.ReportMetric(best.Seconds()*1e6/layers, "us/layer")
				b.ReportMetric(float64(layers*4*s.heads*s.hd*seen)/best.Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
