package xdna2

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// No published kernel is faster than its roofline. Attention without a mask is skipped because no
// op describes it.
func TestNoRowBeatsTheRoofline(t *testing.T) {
	m := defaultModel()
	checked := 0
	for _, r := range PublishedRegistry().Rows() {
		if !r.Standalone() || r.Program != "" {
			continue
		}
		o := r.Op()
		if o == nil {
			continue
		}
		var types []dtype.Type
		if r.Out == dtype.F32 {
			types = []dtype.Type{dtype.BF16, dtype.BF16, dtype.F32}
		}
		c, err := m.cost(o, types, r.Mapping, op.Size{})
		if err != nil {
			t.Fatalf("%s: %v", r.ID, err)
		}
		if c.Roofline.Time > min(r.Latency, c.Time) {
			t.Errorf("%s: measured %.1f us, below its roofline of %.1f", r.ID, r.Latency, c.Roofline.Time)
		}
		if r.Mapping.Variant != "fused-cast" && math.Abs(c.Time/m.Row(&r)-1) > 1e-9 {
			t.Errorf("%s: Cost predicts %.1f us, Row %.1f", r.ID, c.Time, m.Row(&r))
		}
		if c.Bytes > c.Traffic*1.001 {
			t.Errorf("%s: traffic is %.0f bytes, below the minimum of %.0f", r.ID, c.Traffic, c.Bytes)
		}
		checked++
	}
	if checked < 250 {
		t.Errorf("%d rows were checked, want at least 250", checked)
	}
}

func TestBound(t *testing.T) {
	m := defaultModel()
	for _, tc := range []struct {
		name    string
		o       op.Op
		mapping npu.Mapping
		want    string
	}{
		{"a tiny rope is bound by its start", op.RoPE{Rows: 1, Heads: 8, HeadDim: 64}, npu.Mapping{}, boundStart},
		{"a fused-cast GEMM reloads tiles", op.MatMul{M: 2048, K: 2048, N: 8192},
			npu.Mapping{Variant: "fused-cast", Tile: []int{64, 64, 32, 128}}, boundMemory},
		{"a direct GEMM waits for its cores", op.MatMul{M: 2048, K: 2048, N: 8192}, npu.Mapping{Variant: "direct"},
			boundCompute},
		{"a GEMV streams", op.MatMul{M: 1, K: 4096, N: 8192}, npu.Mapping{Variant: "gemv"}, boundMemory},
	} {
		c, err := m.cost(tc.o, nil, tc.mapping, op.Size{})
		if err != nil || c.Bound != tc.want {
			t.Errorf("%s: bound by %q (%v), want %q", tc.name, c.Bound, err, tc.want)
		}
	}
}

// Predictions of valid work are finite and positive, and have a note if no measured rows back them.
func TestCostOfUnusualWork(t *testing.T) {
	m := defaultModel()
	for _, tc := range []struct {
		name    string
		o       op.Op
		types   []dtype.Type
		mapping npu.Mapping
		size    op.Size
		err     string
		note    string
	}{
		{name: "symbolic rows", o: op.Add{Rows: op.Rows, Width: 64}, size: op.Size{Rows: 7}},
		{name: "symbolic rows without a number", o: op.Add{Rows: op.Rows, Width: 64}, err: "want 1 to"},
		{name: "more elements than a dimension has", o: op.Add{Rows: 1 << 20, Width: 1 << 20}},
		{name: "the largest dimensions", o: op.MatMul{M: maxDim, K: maxDim, N: maxDim}},
		{name: "a mapping of zeros", o: op.MatMul{M: 2048, K: 64, N: 64},
			mapping: npu.Mapping{Tile: []int{0, 0, 0, 0}, Herd: []int{0, 0}}},
		{name: "a mapping of negative numbers", o: op.MatMul{M: 2048, K: 64, N: 64},
			mapping: npu.Mapping{Tile: []int{-1}, Herd: []int{-8, 4}}},
		{name: "quantized weights", o: op.MatMul{M: 1, K: 64, N: 64},
			types: []dtype.Type{dtype.BF16, dtype.Q4_0, dtype.BF16}, err: "BF16 and F32"},
		{name: "too few types", o: op.MatMul{M: 1, K: 64, N: 64}, types: []dtype.Type{dtype.BF16}, err: "3 operands"},
		{name: "an invalid op", o: op.MatMul{}, err: "MatMul"},
		{name: "no op", err: "has no op"},
		{
			name: "decode attention", o: op.Attention{Rows: 1, Heads: 8, KVHeads: 2, HeadDim: 64, Cached: true},
			size: op.Size{Pos: 2047}, note: "decode attention",
		},
		{name: "a copy", o: op.KVWrite{Rows: 64, KVHeads: 2, HeadDim: 64}, note: "KVWrite"},
		{name: "a scalar kernel", o: op.SiLUMul{Rows: 64, Width: 64}, mapping: npu.Mapping{Variant: "scalar"},
			note: "scalar"},
		{name: "a bias", o: op.Add{Rows: 64, Width: 64, Broadcast: true}, note: "bias"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := m.cost(tc.o, tc.types, tc.mapping, tc.size)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("got %v, want an error with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			noted := strings.Contains(c.Note, tc.note) && (tc.note == "") == (c.Note == "")
			if !(c.Time > 0) || math.IsInf(c.Time, 0) || !noted {
				t.Errorf("%g us with note %q, want a finite time and a note with %q", c.Time, c.Note, tc.note)
			}
		})
	}
}

// oFFN returns the second program of a layer of Llama-3.2-1B, from the o projection to the
// residual.
func oFFN() []kernelRun {
	c := configs()[0]
	return c.prefillPass().Layer[2].Work
}

// A published program, o_ffn of Llama-3.2-1B: eight ops, twelve launches with the casts, 39.8 ms on
// the array.
func TestProgramAgainstItsPublishedTime(t *testing.T) {
	p, err := NewClock(hostReference()).run("o_ffn", oFFN(), op.Size{})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Launches) != 12 {
		t.Errorf("%d launches, want 12", len(p.Launches))
	}
	if math.Abs(p.Run/39.8e3-1) > 0.08 {
		t.Errorf("%.1f ms, published 39.8", p.Run/1e3)
	}
	if !(p.Roofline > 0.1*p.Run && p.Roofline < p.Run) || p.FLOPs < 2e11 {
		t.Errorf("share %.2f of the roofline with %.3g FLOPs", p.Roofline/p.Run, p.FLOPs)
	}
}

// Decode programs of the published models against their published times on the array.
func TestDecodeProgramsAgainstTheirPublishedTimes(t *testing.T) {
	pass := configs()[0].decodePass()
	c := NewClock(hostReference())
	for _, tc := range []struct {
		d         dispatch
		launches  int
		published float64 // us
	}{
		{pass.Layer[0], 6, 830},
		{pass.Layer[1], 3, 3640}, // the two GEMVs of the SwiGLU stage are one launch
		{pass.Once[0], 8, 13500},
	} {
		p, err := c.run(tc.d.Name, tc.d.Work, op.Size{})
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Launches) != tc.launches || math.Abs(p.Run/tc.published-1) > 0.22 {
			t.Errorf("%s: %d launches in %.0f us, published %d in %.0f",
				tc.d.Name, len(p.Launches), p.Run, tc.launches, tc.published)
		}
	}
}

func TestLosses(t *testing.T) {
	c := NewClock(hostReference())
	names := func(m config, i int, around Around) string {
		p, err := c.run("p", m.prefillPass().Layer[i].Work, op.Size{})
		if err != nil {
			t.Fatal(err)
		}
		s := ""
		for _, l := range c.Losses(p, around) {
			s += l.Name + ";"
		}
		return s
	}
	all := configs()
	for _, tc := range []struct {
		name, want string
		got        string
	}{
		{"Qwen2.5 has separate bias launches", lossBias, names(all[3], 0, Around{})},
		{"Qwen3 has separate QK-norm launches", lossQKNorm, names(all[6], 0, Around{})},
		{"the swiglu program moves 86 MB per layer", lossTransfers, names(all[5], 5, Around{Write: 86 << 20})},
		{"a call takes as long as a small program", lossDispatch, names(all[3], 0, Around{Call: 1000})},
		{"a context is reopened", lossContexts, names(all[3], 0, Around{Open: 35e3})},
		{"padded dimensions are not useful", lossPadding, names(all[3], 3, Around{Useful: 2 * seq * 4864 * 896})},
	} {
		if !strings.Contains(tc.got, tc.want+";") {
			t.Errorf("%s: losses are %q, want %q among them", tc.name, tc.got, tc.want)
		}
	}
	for _, m := range all { // FlashAttention reaches about 2 % of the cores' peak
		flash, err := c.run("flash_attn", m.prefillPass().Layer[1].Work, op.Size{})
		if err != nil {
			t.Fatal(err)
		}
		l := c.Losses(flash, Around{Call: 170})[0]
		if l.Name != LossKernel || l.Time < flash.Run/2 || !strings.Contains(l.What, "% of its roofline") {
			t.Errorf("%s: attention, %.0f us: largest loss is %+v", m.name, flash.Run, l)
		}
	}
	if got := names(all[0], 2, Around{}); strings.Contains(got, lossBias) || strings.Contains(got, lossTransfers) {
		t.Errorf("a program without bias and transfers has losses %q", got)
	}
}

// Program uses the types and sizes of a program's arguments.
func TestProgramFromArguments(t *testing.T) {
	p := npu.NewProgram("o")
	a, w := p.In("a", dtype.BF16, 2048, 2048), p.Const("w", dtype.BF16, 2048, 512)
	f, y := p.Scratch("f", dtype.F32, 2048, 512), p.Out("y", dtype.BF16, 2048, 512)
	m := npu.Mapping{Variant: "fused-cast", Tile: []int{64, 256, 32, 128}, Herd: []int{8, 4}}
	p.Launch("o", op.MatMul{M: 2048, K: 2048, N: 512}, a, w, f)
	p.Map(m)
	p.Launch("o.cast", op.Cast{Rows: 2048, Width: 512}, f, y)
	p.Map(npu.Mapping{Variant: "fused-cast"})
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	clock := NewClock(HostNpukit())
	c, err := clock.Program(p, op.Size{})
	if err != nil {
		t.Fatal(err)
	}
	row, ok := PublishedRegistry().row("gemm/2048x2048x512/fused-cast/64.256.32.128/8x4")
	if !ok || math.Abs(c.Run/(clock.Deployed.Factor*row.Latency)-1) > 0.15 ||
		c.In != 2048*2048*2 || c.Out != 2048*512*2 {
		t.Errorf("%.0f us, %d bytes in, %d out; the row takes %.0f us", c.Run, c.In, c.Out, row.Latency)
	}
}

func ExampleClock_Launch() {
	c, err := NewClock(HostNpukit()).Launch(op.MatMul{M: 2048, K: 2048, N: 8192}, nil,
		npu.Mapping{Variant: "drain", Tile: []int{32, 256, 32, 128}, Herd: []int{8, 4}}, op.Size{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("predicted %.1f ms (published 11.9), bound by %s\n", c.Time/1e3, c.Bound)
	// Output: predicted 11.4 ms (published 11.9), bound by memory
}

// A deployment's own measurement replaces the prediction.
func TestOwnRowReplacesTheModel(t *testing.T) {
	c := NewClock(HostNpukit())
	c.Registry = PublishedRegistry()
	for _, variant := range []string{"drain", "fused-cast"} {
		o := op.MatMul{M: 2048, K: 576, N: 576}
		m := npu.Mapping{Variant: variant, Tile: []int{32, 64, 32, 48}, Herd: []int{8, 4}}
		work := []kernelRun{{Op: o, Mapping: m}}
		if variant == "fused-cast" {
			work = append(work, kernelRun{Op: op.Cast{Rows: 2048, Width: 576}, Mapping: npu.Mapping{Variant: variant}})
		}
		row := Row{
			ID: "gemm/2048x576x576/" + variant, Kernel: GEMM, Shape: Shape{M: 2048, K: 576, N: 576},
			Out: dtype.BF16, Mapping: m, Status: OK,
		}
		row.Latency = 3 * c.Model.Row(&row)
		if err := c.Registry.Add(row); err != nil {
			t.Fatal(err)
		}
		p, err := c.run("p", work, op.Size{})
		if err != nil {
			t.Fatal(err)
		}
		if want := c.Deployed.Factor * row.Latency; math.Abs(p.Run/want-1) > 1e-6 || len(p.Notes) == 0 {
			t.Errorf("%s: %.0f us, want the row's time in a program, %.0f, and a note", variant, p.Run, want)
		}
	}
}

// Scalar kernels are slower than the vector kernels that replace them.
func TestScalarKernelsAreSlower(t *testing.T) {
	m := defaultModel()
	for _, o := range []op.Op{
		op.SiLUMul{Rows: 2048, Width: 8192}, op.RMSNorm{Rows: 2048, Width: 2048},
		op.RoPE{Rows: 2048, Heads: 32, HeadDim: 64},
	} {
		vector, err := m.cost(o, nil, npu.Mapping{}, op.Size{})
		if err != nil {
			t.Fatal(err)
		}
		scalar, err := m.cost(o, nil, npu.Mapping{Variant: "scalar"}, op.Size{})
		if err != nil {
			t.Fatal(err)
		}
		if scalar.Time < 5*vector.Time {
			t.Errorf("%s: scalar %.0f us, vector %.0f", o.Kind(), scalar.Time, vector.Time)
		}
	}
}
