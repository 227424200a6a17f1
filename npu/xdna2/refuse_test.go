package xdna2

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// chain returns a program of GEMMs in sequence, with the given dimensions.
func chain(name, variant string, m npu.Mapping, rows int, dims ...int) *npu.Program {
	p := npu.NewProgram(name)
	x := p.In("x", dtype.BF16, rows, dims[0])
	for i := 1; i < len(dims); i++ {
		t := dtype.BF16
		if variant == "fused-cast" {
			t = dtype.F32
		}
		y := p.Out("y"+string(rune('0'+i)), t, rows, dims[i])
		w := p.Const("w"+string(rune('0'+i)), dtype.BF16, dims[i-1], dims[i])
		p.Launch("gemm"+string(rune('0'+i)), op.MatMul{M: rows, K: dims[i-1], N: dims[i]}, x, w, y)
		p.Map(m)
		if t == dtype.F32 {
			z := p.Out("z"+string(rune('0'+i)), dtype.BF16, rows, dims[i])
			p.Launch("cast"+string(rune('0'+i)), op.Cast{Rows: rows, Width: dims[i]}, y, z)
			p.Map(npu.Mapping{Variant: "fused-cast"})
			y = z
		}
		x = y
	}
	return p
}

// violated returns the IDs of the rules that a program violates.
func violated(t *testing.T, p *npu.Program) []string {
	t.Helper()
	list, err := violations(p, NPU2())
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, e := range list {
		ids = append(ids, e.Rule)
	}
	return ids
}

// programCase is a program that violates a rule, or none if rule is "".
type programCase struct {
	name string
	p    *npu.Program
	rule string
}

// programCases cover conditions on whole programs: which launches share an ELF, the layout of
// arguments, fused kernels.
func programCases() []programCase {
	drain := gemmMap("drain", 32, 256, 32, 128)
	norm := func(packed bool) *npu.Program {
		p := npu.NewProgram("norm")
		x, y := p.In("x", dtype.BF16, 1024, 768), p.Out("y", dtype.BF16, 1024, 768)
		w, b := p.Const("w", dtype.BF16, 2, 768), npu.Ref{}
		if packed {
			w, b = w.Rows(0, 1).As(768), w.Rows(1, 1).As(768)
		} else {
			w, b = w.Rows(0, 1).As(768), p.Const("b", dtype.BF16, 768)
		}
		p.Launch("ln", op.LayerNorm{Rows: 1024, Width: 768, Eps: 1e-5}, x, w, b, y)
		p.Map(vecMap(0, 8, 1))
		return p
	}
	attention := func(more int) *npu.Program {
		p := npu.NewProgram("attention")
		q := p.In("q", dtype.BF16, 256, 64)
		p.Launch("fa", op.Attention{Rows: 256, Heads: 1, KVHeads: 1, HeadDim: 64},
			q, q, q, p.Out("y", dtype.BF16, 256, 64))
		p.Map(npu.Mapping{Variant: "flash", Layout: "seq-first", Tile: []int{256, 64, 4, 1}, Herd: []int{4, 4}})
		for i := range more {
			n := string(rune('a' + i))
			p.Launch(n, op.RMSNorm{Rows: 256, Width: 64, Eps: 1e-5},
				q, p.Const("w"+n, dtype.BF16, 64), p.Out("y"+n, dtype.BF16, 256, 64))
			p.Map(vecMap(0, 8, 1))
		}
		return p
	}
	fused := func(name, variant string) *npu.Program {
		p := npu.NewProgram("fused")
		y := p.Out("y", dtype.BF16, 2048)
		p.Launch("o", op.MatMul{M: 1, K: 2048, N: 2048, TransB: true},
			p.In("x", dtype.BF16, 2048), p.Const("w", dtype.BF16, 2048, 2048), y)
		p.Map(npu.Mapping{Variant: variant, Tile: []int{8, 8}, Herd: []int{8, 1}, Fused: name})
		p.Launch("add", op.SiLUMul{Rows: 1, Width: 2048},
			y, p.In("r", dtype.BF16, 2048), p.Out("z", dtype.BF16, 2048))
		p.Map(npu.Mapping{Fused: name})
		return p
	}
	view := func(width int) *npu.Program {
		p := npu.NewProgram("view")
		x := p.In("x", dtype.BF16, 16, width)
		b, y := p.Const("b", dtype.BF16, 64), p.Out("y", dtype.BF16, 16, 64)
		p.Launch("add", op.Add{Rows: 16, Width: 64, Broadcast: true}, x.Cols(0, 64), b, y)
		p.Map(vecMap(0, 8, 1))
		return p
	}
	large := func(rows int) *npu.Program {
		p := npu.NewProgram("large")
		w := p.Const("w", dtype.BF16, rows, 8192)
		p.Launch("gemv", op.MatMul{M: 1, K: 8192, N: 2048, TransB: true},
			p.In("x", dtype.BF16, 8192), w.Rows(0, 2048), p.Out("y", dtype.BF16, 2048))
		p.Map(gemvMap(2, 2, 8))
		return p
	}
	heads := func(n int) *npu.Program {
		p := npu.NewProgram("heads")
		x := p.In("x", dtype.BF16, 1024)
		for i := range n {
			s := string(rune('A' + i))
			p.Launch(s, op.MatMul{M: 1, K: 1024, N: 8192, TransB: true},
				x, p.Const("w"+s, dtype.BF16, 8192, 1024), p.Out("y"+s, dtype.BF16, 8192))
			p.Map(gemvMap(16, 16, 8))
		}
		return p
	}
	narrowDrain, small := gemmMap("drain", 32, 384, 64, 96), gemmMap("drain", 32, 256, 32, 64)
	cast := gemmMap("fused-cast", 64, 256, 32, 32)
	return []programCase{
		{"a drain GEMM alone, four blocks along M", chain("p", "drain", narrowDrain, 1024, 768, 768), "S-3"},
		{"the same with one block", chain("p", "drain", narrowDrain, 256, 768, 768), ""},
		{"two drain GEMMs", chain("p", "drain", drain, 1024, 1024, 1024, 1024), ""},
		{"a deployed direct GEMM alone", chain("p", "direct", gemmMap("direct", 64, 128, 32, 64), 2048, 2048, 11008),
			""},
		{"a fused cast with K 4864 first", chain("p", "fused-cast", cast, 2048, 4864, 1024), ""},
		{"the same after another", chain("p", "fused-cast", cast, 2048, 1024, 4864, 1024), "S-8"},
		{"three GEMMs of 1536", chain("p", "drain", small, 2048, 1536, 1536, 1536, 1536), ""},
		{"four GEMMs of 1536", chain("p", "drain", small, 2048, 1536, 1536, 1536, 1536, 1536), "R-BD-4"},
		{"four GEMMs of 1024", chain("p", "drain", drain, 2048, 1024, 1024, 1024, 1024, 1024), ""},
		{"LayerNorm with weight and bias in one argument", norm(true), ""},
		{"LayerNorm with two arguments", norm(false), "R-CH-3"},
		{"attention alone", attention(0), ""},
		{"attention with a norm", attention(1), "R-ELF-3"},
		{"attention with eight norms", attention(8), "R-ELF-2"},
		{"a fused kernel that does not exist", fused("cascade.o", "cascade"), "R-ELF-16"},
		{"a stage outside a fused kernel", fused("", "cascade"), "R-MAP-1"},
		{"rows 2 Mi elements apart", view(2 << 20), ""},
		{"rows further apart", view(2<<20 + 2), "R-DMA-1/view"},
		{"an argument of 4 GiB", large(1 << 18), ""},
		{"an argument above", large(1<<18 + 1), "R-DMA-7"},
		{"19 launches", heads(19), ""},
		{"20 launches", heads(20), "R-ELF-1"},
	}
}

func TestProgramRules(t *testing.T) {
	for _, tc := range programCases() {
		ids := violated(t, tc.p)
		if tc.rule == "" && len(ids) > 0 || tc.rule != "" && !slices.Contains(ids, tc.rule) {
			t.Errorf("%s: violates %v, want %q", tc.name, ids, tc.rule)
		}
	}
}

// cascadeCase is the width of the residual stream and of the feed-forward block of a fused decode
// program.
type cascadeCase struct {
	rule        string // violated rule, or "" if it fits
	emb, hidden int
}

func cascadeCases() []cascadeCase {
	return []cascadeCase{
		{"", 2048, 8192},
		{"", 1024, 3072},
		{"R-DIV-8", 2560, 9728}, // five cores of a column
		{"R-DMA-2", 3072, 8192}, // rows of 1536 words
		{"R-DIV-7", 2048, 11008 - 64},
		{"R-L2-2", 2048, 32768},
		{"R-DIV-6", 2048, 8192 + 32},
		{"R-DIV-5", 2048 + 32, 8192},
	}
}

// Fused decode stages have their own limits.
func TestCascadeRules(t *testing.T) {
	for _, tc := range cascadeCases() {
		d := deployments[0]
		d.emb, d.hidden = tc.emb, tc.hidden
		ids := violated(t, d.cascade(t))
		if tc.rule == "" && len(ids) > 0 || tc.rule != "" && !slices.Contains(ids, tc.rule) {
			t.Errorf("residual %d, hidden %d: violates %v, want %q", tc.emb, tc.hidden, ids, tc.rule)
		}
	}
	l2 := cascadePlace(swiglu, 2048, 8192, 160)
	if ids, _ := l2.failing(rules()); len(ids) != 1 || rules()[ids[0]].ID != "R-L2-3" {
		t.Errorf("a panel of 160 rows of K 2048 in a mem tile: violates %v, want R-L2-3", ids)
	}
	wide := cascadePlace(gemvAdd, 2048, 512, 8) // the projection alone, onto a residual stream of 2560
	if ids, _ := wide.failing(rules()); len(ids) != 1 || rules()[ids[0]].ID != "R-DIV-8" {
		t.Errorf("a residual stream of 2560: violates %v, want R-DIV-8", ids)
	}
}

func cascadePlace(s stage, k, n, tm int) *place {
	o := op.MatMul{M: 1, K: k, N: n * 5, TransB: true} // a multiple of 160*8/2
	return &place{array: NPU2(), op: o, kernel: GEMV, shape: Shape{M: 1, K: k, N: n * 5}, stage: s,
		m: npu.Mapping{Variant: "cascade", Tile: []int{tm, 2}, Herd: []int{8, 1}, Fused: "cascade.swiglu"}}
}

// Errors name the rule, the launch, the demand and the limit, and advice that fits.
func TestErrorText(t *testing.T) {
	for _, tc := range []struct {
		name string
		o    op.Op
		m    npu.Mapping
		want []string
	}{
		{"stride", op.MatMul{M: 2048, K: 2048, N: 11008}, gemmMap("direct", 64, 256, 32, 64),
			[]string{"1409024 words, limit 1048576", "(R-DMA-1)", "tile_k_l2 128 instead of 256"}},
		{"core memory", op.MatMul{M: 2048, K: 2048, N: 2048}, gemmMap("drain", 64, 256, 32, 128),
			[]string{"(R-L1-4)", "75776 bytes, limit 65536", "what would fit"}},
		{"garbage", op.MatMul{M: 64, K: 720, N: 960},
			npu.Mapping{Variant: "drain", Tile: []int{16, 240, 48, 80}, Herd: []int{4, 4}},
			[]string{"(S-1)", "tile_k_l2/tile_k_l1 is 5", "tile_k_l1 40 instead of 48"}},
		{"no mapping", op.MatMul{M: 1, K: 2048, N: 2048, TransB: true}, npu.Mapping{},
			[]string{"(R-MAP-1)", `set Variant to one of ["gemv" "cascade"]`,
				"the published row gemv/2048x2048/8.8/8x1"}},
		{"rows", op.MatMul{M: 1, K: 576, N: 200, TransB: true}, gemvMap(8, 8, 8),
			[]string{"(R-DIV-4)", "N is 200, not a multiple of tile_m*herd_m (64): nearest are 192 and 256"}},
		{"odd width", op.MatMul{M: 1, K: 100, N: 512, TransB: true}, gemvMap(8, 8, 8),
			[]string{"K is 100, not a multiple of 64", "K 128 and N 512, padded from 100 and 512"}},
		{"head_dim 16", op.Attention{Rows: 2048, Heads: 4, KVHeads: 2, HeadDim: 16},
			flashMap("seq-first", 256, 64, 4, 2, 4),
			[]string{"(R-DIV-9)", "head_dim is 16", "pad every head to 64"}},
		{"vocabulary", op.MatMul{M: 1, K: 1024, N: 151936, TransB: true}, gemvMap(16, 16, 8),
			[]string{"(R-DMA-6)", "1187 iterations, limit 256", "split it into 19 launches of 8192 rows"}},
		{"layout", op.MatMul{M: 2048, K: 2048, N: 2048, TransB: true}, gemmMap("drain", 32, 256, 32, 128),
			[]string{"(R-DMA-4)", "set TransB to false"}},
		{"sequence first with 128", op.Attention{Rows: 2048, Heads: 16, KVHeads: 8, HeadDim: 128},
			flashMap("seq-first", 256, 64, 4, 2, 4),
			[]string{"(R-DIV-9)", "head-first layout, with HeadFirst and Split 2"}},
		{"decode attention", op.Attention{Rows: 1, Heads: 32, KVHeads: 8, HeadDim: 64, Cached: true}, npu.Mapping{},
			[]string{"(R-KER-1)", "make it a step on the host"}},
	} {
		err := CheckLaunch(tc.o, nil, tc.m, NPU2())
		var e *ResourceError
		if !errors.As(err, &e) {
			t.Errorf("%s: got %v, want a ResourceError", tc.name, err)
			continue
		}
		for _, w := range tc.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: want %q in:\n%v", tc.name, w, err)
			}
		}
	}

	p := chain("ffn", "direct", gemmMap("direct", 64, 256, 32, 64), 2048, 2048, 11008)
	err := Check(p, NPU2())
	for _, w := range []string{"program ffn", `launch "gemm1"`, "R-DMA-1"} {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("want %q in: %v", w, err)
		}
	}
}

func TestKernelTypes(t *testing.T) {
	mul := op.MatMul{M: 2048, K: 2048, N: 2048}
	bf, f, q := dtype.BF16, dtype.F32, dtype.Q4_0
	for _, tc := range []struct {
		variant string
		types   []dtype.Type
		fits    bool
	}{
		{"fused-cast", []dtype.Type{bf, bf, f}, true},
		{"fused-cast", []dtype.Type{bf, bf, bf}, false},
		{"drain", []dtype.Type{bf, bf, bf}, true},
		{"drain", []dtype.Type{bf, bf, f}, false},
		{"direct", []dtype.Type{bf, bf, f}, true},
		{"direct", []dtype.Type{bf, q, bf}, false},
		{"direct", []dtype.Type{f, bf, bf}, false},
	} {
		err := CheckLaunch(mul, tc.types, gemmMap(tc.variant, 32, 256, 32, 128), NPU2())
		if (err == nil) != tc.fits {
			t.Errorf("%s with %v: %v, want fits %v", tc.variant, tc.types, err, tc.fits)
		}
	}
	if err := CheckLaunch(mul, []dtype.Type{bf}, gemmMap("drain", 32, 256, 32, 128), NPU2()); err == nil {
		t.Error("one type for three operands: no error")
	}
	if err := CheckLaunch(nil, nil, npu.Mapping{}, NPU2()); err == nil {
		t.Error("no op: no error")
	}
}

func TestContexts(t *testing.T) {
	if err := CheckContexts(8, NPU2()); err != nil {
		t.Error(err)
	}
	if err := CheckContexts(9, NPU2()); err == nil || !strings.Contains(err.Error(), "9 contexts, limit 8 (R-ELF-6)") {
		t.Errorf("nine programs: %v", err)
	}
}

// A mapping is untrusted input: checking it is fast and never panics.
func TestHostileMappings(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	numbers := []int{-1 << 63, -1, 0, 1, 2, 7, 8, 16, 63, 64, 255, 256, 4096, 1 << 20, 1<<20 + 1, 1 << 40, 1<<63 - 1}
	list := func() []int {
		n := make([]int, r.IntN(6))
		for i := range n {
			n[i] = numbers[r.IntN(len(numbers))]
		}
		return n
	}
	ops := []op.Op{
		op.MatMul{M: 1 << 28, K: 1 << 28, N: 1 << 28}, op.MatMul{M: 1, K: 1 << 28, N: 1 << 28, TransB: true},
		op.MatMul{M: 3, K: 5, N: 7},
		op.Attention{Rows: 1 << 28, Heads: 1 << 20, KVHeads: 1, HeadDim: 1 << 28},
		op.Attention{Rows: 1, Heads: 1, KVHeads: 1, HeadDim: 64, HeadFirst: true},
		op.Add{Rows: 1, Width: 1}, op.SiLUMul{Rows: 2048, Width: 8192}, op.GELU{Rows: 3, Width: 3},
		op.RMSNorm{Rows: 7, Width: 1 << 28},
		op.LayerNorm{Rows: 7, Width: 7}, op.RoPE{Rows: 3, Heads: 5, HeadDim: 6}, op.Cast{Rows: 3, Width: 3},
		op.Slice{Rows: 3, Width: 4, N: 2},
	}
	variants := []string{
		"", "scalar", "gemv", "cascade", "drain", "fused-cast", "direct", "f32-out", "flash", "temporal", "rubbish",
	}
	start := time.Now()
	const n = 300
	for range n {
		m := npu.Mapping{Variant: variants[r.IntN(len(variants))], Tile: list(), Herd: list(),
			Layout: []string{"", "seq-first", "head-first"}[r.IntN(3)]}
		for _, o := range ops {
			fits := Fits(o, nil, m, NPU2())
			if !fits {
				continue
			}
			if err := CheckLaunch(o, nil, m, NPU2()); err != nil {
				t.Fatalf("%#v with %+v: Fits is true, CheckLaunch: %v", o, m, err)
			}
		}
		o := ops[r.IntN(len(ops))]
		if err := CheckLaunch(o, nil, m, NPU2()); (err == nil) != Fits(o, nil, m, NPU2()) {
			t.Fatalf("%#v with %+v: Fits is %v, CheckLaunch: %v", o, m, err != nil, err)
		}
	}
	t.Logf("%d mappings with advice, %v each", n, time.Since(start)/n)
}

// Long prompts have more elements than the limit of a dimension. Sizes that no machine has memory
// for are rejected with the launch's name.
func TestManyElements(t *testing.T) {
	for _, tc := range []struct {
		rows, width int
		err         string
	}{{32768, 14336, ""}, {1 << 24, 1 << 20, `launch "act"`}} {
		p := npu.NewProgram("ffn")
		g, u := p.In("g", dtype.BF16, tc.rows, tc.width), p.In("u", dtype.BF16, tc.rows, tc.width)
		p.Launch("act", op.SiLUMul{Rows: tc.rows, Width: tc.width},
			g, u, p.Out("y", dtype.BF16, tc.rows, tc.width))
		p.Map(npu.Mapping{Tile: []int{1024}, Herd: []int{8, 1}})
		err := Check(p, NPU2())
		if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%d x %d: %v, want %q", tc.rows, tc.width, err, tc.err)
		}
	}
}

// The search for narrower rows starts at the widest row that a core could hold, so it stays short.
func TestAdviceForWideRowsIsBounded(t *testing.T) {
	for _, o := range []op.Op{op.RMSNorm{Rows: 8, Width: 1 << 28}, op.LayerNorm{Rows: 8, Width: 1 << 28}} {
		n := 0
		for _, list := range resizings(o, NPU2()) {
			n += len(list)
		}
		if n < 100 || n > 5000 {
			t.Errorf("%s: %d shapes to try, want 100 to 5000", o.Kind(), n)
		}
	}
}

// Mappings that advice suggests fit.
func TestAdviceFits(t *testing.T) {
	for _, r := range PublishedRegistry().Rows() {
		o := r.Op()
		if r.runs() || o == nil || r.Program != "" || slices.Contains(r.Mapping.Tile, 0) || len(r.Mapping.Herd) != 2 ||
			len(r.Mapping.Tile) != len(forms(r.Kernel).tile) {
			continue
		}
		p, err := newPlace(NPU2(), o, rowTypes(r, o), r.Mapping)
		if err != nil {
			t.Fatal(err)
		}
		if p.fits(rules()) {
			continue // a claimed failure that the rules do not follow
		}
		advice := p.suggest(rules())
		if len(advice) == 0 {
			t.Logf("%s: no other mapping fits", r.ID)
			continue
		}
		t.Logf("%s: %s", r.ID, advice[0])
		q := *p
		q.m.Tile, q.m.Herd = slices.Clone(p.m.Tile), slices.Clone(p.m.Herd)
		for _, change := range strings.Split(advice[0], " and ") {
			f := strings.Fields(strings.TrimSpace(change))
			for _, k := range p.knobs() {
				if strings.HasPrefix(change, k.name+" ") {
					n := 0
					for _, c := range f[len(strings.Fields(k.name))] {
						n = n*10 + int(c-'0')
					}
					k.set(&q, n)
				}
			}
		}
		if strings.Contains(advice[0], "instead of") && !q.fits(rules()) {
			t.Errorf("%s: %q does not fit", r.ID, advice[0])
		}
	}
}

// Every violation names its rule, the demand and the limit, and at least one alternative.
func TestViolationsAreComplete(t *testing.T) {
	flash := flashMap("seq-first", 256, 64, 4, 2, 4)
	attention := func(rows, headDim int) op.Op {
		return op.Attention{Rows: rows, Heads: 32, KVHeads: 8, HeadDim: headDim}
	}
	seen := map[string]bool{}
	for _, tc := range []struct {
		name string
		o    op.Op
		m    npu.Mapping
		want string // in the advice
	}{
		{"a prompt of 2", attention(2, 64), flash, "pad the positions from 2 to 64, with the tile"},
		{"a prompt of 100", attention(100, 64), flash, "pad the positions from 100 to 128, with the tile"},
		{"a prompt of 2047", attention(2047, 64), flash,
			"pad the positions from 2047 to 2048; or: a prompt of 1984 positions"},
		{"head_dim 16", attention(2048, 16), flash, "pad every head to 64"},
		{"head_dim 96", attention(2048, 96), flash, "a step on the host"},
		{"head_dim 512, sequence first", attention(2048, 512), flash, "head-first"},
		{"rows of 8192 in a norm", op.RMSNorm{Rows: 2048, Width: 8192, Eps: 1e-5}, vecMap(0, 8, 1),
			"rows of at most 6448 fit a core"},
		{"rows of 100 in a norm", op.RMSNorm{Rows: 2048, Width: 100, Eps: 1e-5}, vecMap(0, 8, 1),
			"pad the width from 100 to 112"},
		{"13 rows in a norm", op.RMSNorm{Rows: 13, Width: 2048, Eps: 1e-5}, vecMap(0, 8, 1),
			"herd columns 1 instead of 8"},
		{"rows of 9000 in a LayerNorm", op.LayerNorm{Rows: 2048, Width: 9008, Eps: 1e-5}, vecMap(0, 8, 1),
			"make it a step on the host: rows of at most"},
		{"the down projection of an 8B model", op.MatMul{M: 1, K: 14336, N: 4096, TransB: true}, gemvMap(16, 16, 8),
			"split N into 2 launches of 2048"},
		{"a weight of prime width", op.MatMul{M: 1, K: 2048, N: 777, TransB: true}, gemvMap(16, 16, 8),
			"padded from 2048 and 777"},
		{"a GEMM of prime width", op.MatMul{M: 2048, K: 777, N: 777}, gemmMap("drain", 32, 256, 32, 128),
			"padded from 777 and 777"},
		{"a GEMM of 7 rows", op.MatMul{M: 7, K: 2048, N: 2048}, gemmMap("drain", 32, 256, 32, 128),
			"pad the rows from 7 to"},
		{"an odd add", op.Add{Rows: 7, Width: 100}, vecMap(1024, 8, 1), ""},
		{"an odd SwiGLU", op.SiLUMul{Rows: 7, Width: 100}, vecMap(1024, 8, 1), ""},
		{"an odd GELU", op.GELU{Rows: 7, Width: 100}, vecMap(1024, 8, 1), ""},
		{"RoPE of 10", op.RoPE{Rows: 7, Heads: 3, HeadDim: 10, TableHeads: 3}, vecMap(0, 8, 1),
			"pad the head dimension from 10 to 16"},
		{"an odd cast", op.Cast{Rows: 7, Width: 101}, npu.Mapping{Variant: "fused-cast"}, ""},
		{"an embedding", op.Embed{Rows: 7, Vocab: 100, Width: 64}, npu.Mapping{}, "a step on the host"},
		{"a herd of 9", op.Add{Rows: 2048, Width: 2048}, vecMap(1024, 9, 1), "herd columns 8 instead of 9"},
	} {
		err := CheckLaunch(tc.o, nil, tc.m, NPU2())
		list, ok := err.(violationList)
		if !ok {
			t.Errorf("%s: got %v, want a violationList", tc.name, err)
			continue
		}
		for _, e := range list {
			seen[e.Rule] = true
			if e.Rule == "" || e.What == "" || len(e.Advice) == 0 || slices.Contains(e.Advice, "") {
				t.Errorf("%s: incomplete: %+v", tc.name, e)
			}
			violates := e.Available > 0 && (e.Step != 0 || e.Wanted > e.Available) &&
				(e.Step <= 0 || e.Wanted%e.Step != 0 && e.Available%e.Step == 0)
			if e.Unit != "" && !violates {
				t.Errorf("%s: %s: wanted %d, available %d, step %d", tc.name, e.Rule, e.Wanted, e.Available, e.Step)
			}
		}
		text := err.Error()
		if strings.Contains(text, "limit 0") || !strings.Contains(text, "what would fit: ") ||
			!strings.Contains(text, tc.want) {
			t.Errorf("%s: want advice %q in:\n%s", tc.name, tc.want, text)
		}
	}
	if len(seen) < 12 {
		t.Errorf("only %d rules are violated: %v", len(seen), seen)
	}
}
