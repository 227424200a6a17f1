package xdna2

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// The embedded rows are valid, complete and unique.
func TestPublishedRows(t *testing.T) {
	want := map[Kernel]map[Status]int{
		GEMM: {OK: 156, statusCaveat: 19, statusFails: 18, statusClaimedFail: 4, Corrupt: 12,
			statusUncharacterized: 1},
		GEMV:      {OK: 46, statusFails: 7},
		Attention: {OK: 21, statusCaveat: 2, statusFails: 8},
		Add:       {OK: 23, statusFails: 4, Corrupt: 1},
		SiLUMul:   {OK: 16, statusFails: 8},
		GELU:      {OK: 15, statusFails: 3},
		RMSNorm:   {OK: 11},
		LayerNorm: {OK: 5, statusFails: 1},
		RoPE:      {OK: 17, statusFails: 3, Corrupt: 1},
	}
	got := map[Kernel]map[Status]int{}
	ids := map[string]bool{}
	sources := map[Kernel]string{}
	for _, f := range published() {
		sources[f.Kernel] = f.Source
	}
	for _, r := range PublishedRegistry().Rows() {
		if err := r.Validate(); err != nil {
			t.Error(err)
		}
		if ids[r.ID] || !strings.HasPrefix(r.ID, string(r.Kernel)+"/") {
			t.Errorf("id %s is not unique or does not begin with its kernel", r.ID)
		}
		ids[r.ID] = true
		if r.Upstream == "" || r.File == "" || sources[r.Kernel] == "" {
			t.Errorf("%s has no source", r.ID)
		}
		complete := r.Latency != 0 && (r.MeanRelL1 != 0 || r.Kernel == GEMV) && r.ATol != 0
		if r.Record == Published && r.Status == OK && !complete {
			t.Errorf("%s is ok but has no time, error or tolerance", r.ID)
		}
		if r.Latency > 0 && r.GFLOPS > 0 && r.Kernel == GEMM {
			s := r.Shape
			rate := 2 * float64(s.M) * float64(s.K) * float64(s.N) / r.Latency / 1e3
			if rate/r.GFLOPS > 1.03 || rate/r.GFLOPS < 0.97 {
				t.Errorf("%s: %g us is %.0f GFLOP/s, but gflops is %g", r.ID, r.Latency, rate, r.GFLOPS)
			}
		}
		if got[r.Kernel] == nil {
			got[r.Kernel] = map[Status]int{}
		}
		got[r.Kernel][r.Status]++
	}
	for k, statuses := range want {
		for s, n := range statuses {
			if got[k][s] != n {
				t.Errorf("%s: %d rows are %s, want %d", k, got[k][s], s, n)
			}
			delete(got[k], s)
		}
		if len(got[k]) != 0 {
			t.Errorf("%s: rows of other statuses: %v", k, got[k])
		}
		delete(got, k)
	}
	if len(got) != 0 {
		t.Errorf("rows of other kernels: %v", got)
	}
}

func TestFindIsExact(t *testing.T) {
	reg := PublishedRegistry()
	o := op.MatMul{M: 2048, K: 2048, N: 2048}
	m := npu.Mapping{Variant: "drain", Tile: []int{32, 512, 32, 128}, Herd: []int{8, 4}}
	rows, err := reg.find(o, dtype.BF16, m, op.Size{})
	if err != nil || len(rows) != 1 || rows[0].Latency != 2851.4 {
		t.Errorf("got %v (%v), want the drain row of 2851.4 us", rows, err)
	}
	m.Tile = []int{32, 256, 32, 128}
	if rows, _ := reg.find(o, dtype.BF16, m, op.Size{}); len(rows) != 0 {
		t.Errorf("other tiles found %s", rows[0].ID)
	}
	// find also returns corrupt rows, which a planner must avoid.
	bad := npu.Mapping{Tile: []int{2048}, Herd: []int{8, 1}}
	rows, err = reg.find(op.Add{Rows: 256, Width: 960}, dtype.BF16, bad, op.Size{})
	if err != nil || len(rows) != 1 || rows[0].Status != Corrupt {
		t.Errorf("got %v (%v), want the corrupt row", rows, err)
	}
}

func TestFirstCandidateIsTheFastestOfTheNearestShape(t *testing.T) {
	reg := PublishedRegistry()
	for _, tc := range []struct {
		name  string
		o     op.Op
		out   dtype.Type
		id    string
		exact bool
	}{
		{"three variants of one shape", op.MatMul{M: 2048, K: 2048, N: 512}, dtype.BF16,
			"gemm/2048x2048x512/drain/32.256.32.128/8x4", true},
		{"result in FP32", op.MatMul{M: 2048, K: 2048, N: 512}, dtype.F32,
			"gemm/2048x2048x512/f32-out/64.256.32.128/8x4", true},
		{"an unmeasured shape", op.MatMul{M: 2048, K: 2048, N: 8000}, dtype.BF16,
			"gemm/2048x2048x8192/fused-cast/64.256.32.128/8x4", false},
		{"one row is a GEMV", op.MatMul{M: 1, K: 2048, N: 8192}, dtype.BF16,
			"gemv/8192x2048/8.8/8x1", true},
		{"heads multiply rows", op.RoPE{Rows: 2048, Heads: 8, HeadDim: 64}, dtype.BF16,
			"rope/16384x64/1/8x1", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			list, err := reg.Candidates(tc.o, tc.out, op.Size{})
			if err != nil || len(list) == 0 {
				t.Fatalf("%d candidates, %v", len(list), err)
			}
			_, shape, err := ShapeOf(tc.o, op.Size{})
			if best := list[0]; err != nil || best.ID != tc.id || (best.Shape == shape) != tc.exact {
				t.Errorf("got %s (%v), want %s", best.ID, err, tc.id)
			}
		})
	}
	list, err := reg.Candidates(op.Permute{Shape: []int{8, 8}, Perm: []int{1, 0}}, dtype.BF16, op.Size{})
	if err != nil || len(list) > 0 {
		t.Errorf("%d candidates for a permutation (%v), but no row of one is published", len(list), err)
	}
}

// Added rows win over published ones and survive JSON. Published rows are not written.
func TestOwnRows(t *testing.T) {
	reg := PublishedRegistry()
	published := len(reg.Rows())
	own := Row{
		ID: "gemm/2048x576x576/drain/mine", Kernel: GEMM, Shape: Shape{M: 2048, K: 576, N: 576},
		Out: dtype.BF16, Status: OK, Latency: 400,
		Mapping: npu.Mapping{Variant: "drain", Tile: []int{32, 64, 32, 48}, Herd: []int{8, 4}},
	}
	if err := reg.Add(own); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(reg)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), "2048x2048x2048") {
		t.Error("published rows are written")
	}
	var again Registry
	if err := json.Unmarshal(data, &again); err != nil {
		t.Fatal(err)
	}
	if len(again.Rows()) != published+1 || len(again.added()) != 1 {
		t.Errorf("got %d rows after a round trip, want %d", len(again.Rows()), published+1)
	}
	list, err := again.Candidates(op.MatMul{M: 2048, K: 576, N: 576}, dtype.BF16, op.Size{})
	if err != nil || len(list) == 0 || list[0].ID != own.ID || list[0].Record != Own {
		t.Errorf("the candidates are %v (%v), want the added row first", list, err)
	}
}

func TestAddRejectsInvalidRows(t *testing.T) {
	good := Row{ID: "add/96/x", Kernel: Add, Shape: Shape{N: 96}, Out: dtype.BF16, Status: OK}
	for _, tc := range []struct {
		name, want string
		corrupt    func(*Row)
	}{
		{"no id", "want an id", func(r *Row) { r.ID = "" }},
		{"duplicate id", "already exists", func(r *Row) { r.ID = "rope/8x64/1/8x1" }},
		{"unknown kernel", "unknown kernel", func(r *Row) { r.Kernel = "conv" }},
		{"unknown status", "unknown status", func(r *Row) { r.Status = "fine" }},
		{"no shape", "want 1 to", func(r *Row) { r.Shape = Shape{} }},
		{"a shape that overflows", "want 1 to", func(r *Row) { r.Shape.N = 1 << 60 }},
		{"a negative time", "not negative", func(r *Row) { r.Latency = -1 }},
		{"fails without a reason", "want a failure category", func(r *Row) { r.Status = statusFails }},
		{"a type that no kernel writes", "BF16 or F32", func(r *Row) { r.Out = dtype.Q4_0 }},
		{"heads that do not group", "want a multiple", func(r *Row) {
			r.Kernel, r.Shape = Attention, Shape{Rows: 8, Keys: 8, Heads: 3, KVHeads: 2, HeadDim: 64}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			row := good
			tc.corrupt(&row)
			if err := PublishedRegistry().Add(row); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
	if err := PublishedRegistry().Add(good); err != nil {
		t.Errorf("valid row: %v", err)
	}
	var reg Registry
	for _, data := range []string{
		`{}`, `[{"kernel":"add","rows":[{"id":"x","unknown":1}]}]`, `[{"kernel":"add","rows":[{"id":"x"}]}]`, `[`,
	} {
		if err := json.Unmarshal([]byte(data), &reg); err == nil {
			t.Errorf("Unmarshal(%s): no error", data)
		}
	}
}

func ExampleRegistry_Candidates() {
	// The fastest tiles for the gate projection of Llama-3.2-1B.
	list, err := PublishedRegistry().Candidates(op.MatMul{M: 2048, K: 2048, N: 8192}, dtype.BF16, op.Size{})
	if err != nil {
		fmt.Println(err)
		return
	}
	best := list[0]
	fmt.Println(best.Mapping.Variant, best.Mapping.Tile, best.GFLOPS, "GFLOP/s")
	// Output: fused-cast [64 256 32 128] 6893 GFLOP/s
}
