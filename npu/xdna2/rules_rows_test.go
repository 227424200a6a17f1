package xdna2

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// mechanisms maps each category of failure to the rules that explain it, so that a row is not
// rejected for an unrelated reason.
var mechanisms = map[string][]string{
	"l1_overflow":                {"R-L1-1", "R-L1-4", "R-L1-5", "R-L1-6", "R-L1-7", "R-L1-9", "R-L1-10"},
	"l2_memtile_overflow":        {"R-L2-1", "R-L2-4"},
	"dma_stride_range":           {"R-DMA-1"},
	"dma_len_not_multiple_of_4B": {"R-DMA-3"},
	"bd_repeat_gt_255":           {"R-DMA-5", "R-DMA-6"},
	"bd_exhaustion":              {"R-BD-2"},
	"shim_dma_channels":          {"R-CH-1", "R-CH-4"},
	"placement_fail":             {"R-CH-5", "R-DMA-3", "R-DMA-8"},
	"placement_fail_32_tiles":    {"R-CH-2"},
	"herd_y_gt_4_rows":           {"R-MAP-2"},
	"connect_same_dst":           {"R-CH-3"},
	"runtime_command_state":      {"R-DIV-3"},
	"mmul_static_assert_n16":     {"R-DIV-2"},
	"mmul_static_assert_m16":     {"R-DIV-2"},
	"assert_dv_chunks_eq_1":      {"R-DIV-9"},
	"silent_corruption_k_tiling": {"S-1"},
	"silent_zero_after_2_tiles":  {"S-2"},
	"half_rows_zero_or_nan":      {"R-DMA-8"},
}

// otherRules maps rows that violate a rule outside their own category to that rule, with the
// evidence.
var otherRules = map[string]struct{ rule, why string }{
	"gemm/64x12288x960/drain/16.512.32.240/4x4": {"R-L2-4",
		"published as an L1 overflow; the panels fill the mem tiles of 4 columns exactly, without C"},
	"gemm/2048x2048x6144/fused-cast/64.512.32.128/8x4": {"R-DMA-1",
		"published as descriptors left without ids; its stride is 1.5 times what fits"},
	"gemm/2048x4096x12288/direct/64.256.32.64/8x4": {"R-DMA-1",
		"published as 16 active descriptors exceeded (R-BD-1); its stride is 1.5 times what fits"},
	"gemm/2048x2560x10240/fused-cast/64.256.32.128/8x4": {"R-DMA-1", "published without a reason"},
	"gemm/2048x1536x8960/direct/64.256.32.64/8x4":       {"R-DMA-1", "published without a reason"},
	"gemv/2560x4096/8.8/4x1":                            {"R-ELF-12", "hangs at run time: the rule is the observation"},
	"attention/512x512.2q2kv.hd64/128.64.4.2/8x4": {"R-DIV-11",
		"hangs at run time: the builder asserts for causal attention what this row breaks without"},
	"gemm/2048x4096x14336/fused-cast/64.256.32.128/8x4": {"R-DMA-1",
		"uncharacterised: compiled over an hour, then given up (R-ELF-8)"},
}

// measuredFailures are the failing rows that no mechanism explains. R-L1-6 rejects them because
// they were measured, but not similar launches.
var measuredFailures = []string{
	"gemm/2048x1024x1024/fused-cast/64._.32.128/8x4",
	"gemm/2048x1536x8960/fused-cast/64._.32.64/8x4",
	"gemm/2048x3584x512/fused-cast/64._.32.128/8x4",
	"gemm/2048x896x896/fused-cast/64._.32._/8x4",
}

// inPrograms are rows that violate rules on programs, not on launches; see TestProgramRules.
var inPrograms = []string{
	"gemm/1024x768x768/drain/32._._.96/8x4/single-launch-elf",
	"layernorm/1024x768/8x1/separate-weight-and-bias",
}

// unstatedK1 is a corrupt row without tile_k_l1. With 32, like similar rows, it violates S-1.
const unstatedK1 = "gemm/192x320x64/drain/_.160._._"

// rowPlace returns the launch that a row measured, without inferred parts of its mapping.
func rowPlace(r Row) *place {
	m := r.Mapping
	m = npu.Mapping{Variant: m.Variant, Layout: m.Layout, Tile: slices.Clone(m.Tile), Herd: slices.Clone(m.Herd)}
	for _, name := range r.Inferred {
		if name == "herd" {
			m.Herd = nil
		}
		if i := slices.Index(forms(r.Kernel).tile, name); i >= 0 {
			m.Tile[i] = 0
		}
	}
	if r.ID == unstatedK1 {
		m.Tile[2] = 32
	}
	return &place{array: NPU2(), kernel: r.Kernel, shape: r.Shape, out: r.Out, m: m}
}

// failingRules applies every rule on launches except those that need a complete mapping.
func failingRules(p *place, count func(id string, failed bool)) []string {
	var failed []string
	for _, r := range rules() {
		if r.launch == nil || r.ID == "R-MAP-1" || strings.HasPrefix(r.ID, "R-KER") {
			continue
		}
		v := r.launch(p)
		if v.decided {
			count(r.ID, v.failed)
		}
		if v.failed {
			failed = append(failed, r.ID)
		}
	}
	return failed
}

// Every published row is a test case: launches that ran fit, launches that failed or wrote garbage
// violate a rule that explains their failure.
func TestRulesMatchPublishedRows(t *testing.T) {
	type tally struct{ pass, fail int }
	cases := map[string]*tally{}
	var ran, whole, refused int
	seen := map[string]bool{}
	for _, r := range PublishedRegistry().Rows() {
		if r.Program != "" {
			continue // a whole program; see TestPublishedProgramsFit
		}
		count := func(id string, failed bool) {
			if cases[id] == nil {
				cases[id] = &tally{}
			}
			if failed {
				cases[id].fail++
			} else {
				cases[id].pass++
			}
		}
		p := rowPlace(r)
		failed := failingRules(p, count)
		seen[r.ID] = true
		switch r.Status {
		case OK, statusCaveat, statusClaimedFail: // rows that run contradict such claims
			ran++
			if !checkMapping(p).failed {
				whole++
			}
			if len(failed) > 0 {
				t.Errorf("%s (%s) ran but violates %v", r.ID, r.Status, failed)
			}
			continue
		}
		if slices.Contains(inPrograms, r.ID) {
			continue
		}
		refused++
		want := mechanisms[r.Failure]
		if o, ok := otherRules[r.ID]; ok {
			want = []string{o.rule}
		}
		if slices.Contains(measuredFailures, r.ID) {
			want = []string{"R-L1-6"}
		} else if slices.Contains(failed, "R-L1-6") {
			t.Errorf("%s violates R-L1-6 but is not in measuredFailures", r.ID)
		}
		if !slices.ContainsFunc(want, func(id string) bool { return slices.Contains(failed, id) }) {
			t.Errorf("%s (%s: %s) violates %v, want one of %v", r.ID, r.Status, r.Failure, failed, want)
		}
	}
	listed := slices.Concat(slices.Collect(maps.Keys(otherRules)), measuredFailures, inPrograms, []string{unstatedK1})
	for _, id := range listed {
		if !seen[id] {
			t.Errorf("no row %s", id)
		}
	}
	if ran < 250 || refused < 60 {
		t.Errorf("checked %d rows that ran and %d that did not, want at least 250 and 60", ran, refused)
	}
	t.Logf("%d rows fit (%d with a complete mapping), %d fail, %d fail in programs",
		ran, whole, refused, len(inPrograms))
	for _, id := range slices.Sorted(maps.Keys(cases)) {
		t.Logf("%-10s %4d pass %4d fail", id, cases[id].pass, cases[id].fail)
	}
	for _, id := range slices.Sorted(maps.Keys(otherRules)) {
		t.Logf("violates %s, outside its own category: %s: %s", otherRules[id].rule, id, otherRules[id].why)
	}
	for _, id := range measuredFailures {
		t.Logf("unexplained, rejected because measured: %s", id)
	}
}

// Complete published mappings pass CheckLaunch, including types and the form of the mapping.
func TestCompleteRowsPassCheckLaunch(t *testing.T) {
	n := 0
	for _, r := range PublishedRegistry().Rows() {
		if !r.runs() || r.Program != "" || len(r.Inferred) > 0 || slices.Contains(r.Mapping.Tile, 0) ||
			len(r.Mapping.Herd) != 2 {
			continue
		}
		o := r.Op()
		if o == nil || len(r.Mapping.Tile) != len(forms(r.Kernel).tile) {
			continue
		}
		n++
		if err := CheckLaunch(o, rowTypes(r, o), r.Mapping, NPU2()); err != nil {
			t.Errorf("%s: %v", r.ID, err)
		}
	}
	if n < 230 {
		t.Errorf("only %d rows were complete enough to check", n)
	}
}

func rowTypes(r Row, o op.Op) []dtype.Type {
	var types []dtype.Type
	for _, operand := range o.Operands() {
		t := dtype.BF16
		if operand.Write && (r.Mapping.Variant == "fused-cast" || r.Out == dtype.F32) {
			t = dtype.F32
		}
		types = append(types, t)
	}
	return types
}

// The notes of R-L1-7 and R-DMA-1 quote how many rows run that a stricter rule would reject: GEMVs
// that would not fit a core with weight rows and vector double-buffered, and GEMMs with a stride of
// more than 2^20 elements.
func TestNumbersThatRulesQuote(t *testing.T) {
	n := 0
	for _, r := range PublishedRegistry().Rows() {
		if r.Kernel == GEMV && r.runs() && len(r.Mapping.Tile) == 2 && len(r.Inferred) == 0 &&
			2*2*r.Shape.K*(r.Mapping.Tile[1]+1) > NPU2().CoreMemory {
			n++
		}
	}
	words := 0
	for _, r := range PublishedRegistry().Rows() {
		if r.Kernel == GEMM && r.runs() && r.Record == Published && len(r.Mapping.Tile) == 4 &&
			r.Mapping.Tile[1]*r.Shape.N > 1<<20 &&
			r.Mapping.Tile[1] < r.Shape.K {
			words++
		}
	}
	for _, r := range Rules() {
		if r.ID == "R-DMA-1" && !strings.Contains(r.Note, fmt.Sprintf(" %d published rows", words)) {
			t.Errorf("note of R-DMA-1 is %q, the registry has %d such rows", r.Note, words)
		}
		if r.ID == "R-L1-7" && !strings.Contains(r.Note, fmt.Sprintf(" %d of its rows", n)) {
			t.Errorf("note of R-L1-7 is %q, the registry has %d such rows", r.Note, n)
		}
	}
}
