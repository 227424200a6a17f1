package xdna2

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// Status is the outcome of building and running a row's kernel: [OK], [Corrupt], or
//
//	caveat            runs, with the restriction in Failure or Note
//	fails             does not build or does not run
//	claimed_fail      predicted to fail by an argument that passing rows contradict
//	uncharacterized   abandoned without a result
type Status string

const (
	OK      Status = "ok"      // runs, every element within tolerance
	Corrupt Status = "corrupt" // runs and silently writes wrong results

	statusCaveat          Status = "caveat"
	statusFails           Status = "fails"
	statusClaimedFail     Status = "claimed_fail"
	statusUncharacterized Status = "uncharacterized"
)

var statuses = []Status{OK, statusCaveat, statusFails, Corrupt, statusClaimedFail, statusUncharacterized}

// Record is the kind of measurement of a row: [Published], [Sweep], [Own], or
//
//	in-situ      inside a deployed ELF with other launches
//	remeasured   a registry row measured again
//	format-ab    the same kernel as ELF and as xclbin
type Record string

const (
	Published Record = "registry" // one launch on its own, timed from start to completion
	Sweep     Record = "sweep"    // a point of a parameter sweep, timed in the same way
	Own       Record = "own"      // added by a deployment

	recordInSitu     Record = "in-situ"
	recordRemeasured Record = "remeasured"
	recordFormatAB   Record = "format-ab"
)

var records = []Record{Published, Sweep, recordInSitu, recordRemeasured, recordFormatAB, Own}

// Row is a measurement of one kernel in one shape under one mapping. Times are microseconds, rates
// GFLOP/s; a multiply-add counts as two operations. Zero means that the source has no figure.
type Row struct {
	ID      string      `json:"id"` // stable, such as "gemm/2048x2048x2048/drain/32.512.32.128/8x4"
	Kernel  Kernel      `json:"-"`  // from the file
	Shape   Shape       `json:"shape,omitzero"`
	Out     dtype.Type  `json:"out"` // type of the result; all inputs are BF16
	Mapping npu.Mapping `json:"mapping"`
	Binary  string      `json:"binary,omitempty"` // "xclbin", "elf", or "harness" if the source does not specify
	Record  Record      `json:"record"`
	Status  Status      `json:"status"`
	Failure string      `json:"failure,omitempty"` // category, such as "l1_overflow"
	Program string      `json:"program,omitempty"` // set if the row times a whole program
	// Launches and bytes read by that program.
	Launches int `json:"launches,omitempty"`
	Bytes    int `json:"bytes,omitempty"`

	Latency      float64   `json:"latency_us,omitempty"`
	LatencyRange []float64 `json:"latency_range_us,omitempty"`
	Derived      bool      `json:"latency_derived,omitempty"` // computed from a published rate
	GFLOPS       float64   `json:"gflops,omitempty"`

	// Mean |a-e| over mean |e|, where e is the FP32 reference in the result's type.
	MeanRelL1    float64 `json:"mean_rel_l1,omitempty"`
	MeanRelL1Max float64 `json:"mean_rel_l1_max,omitempty"`
	MaxAbs       float64 `json:"max_abs,omitempty"`
	MaxRel       float64 `json:"max_rel,omitempty"`
	Pearson      float64 `json:"pearson,omitempty"`
	ATol         float64 `json:"atol,omitempty"` // tolerance: |a-e| <= atol + rtol*|e| for every element
	RTol         float64 `json:"rtol,omitempty"`

	// Precision of a GEMM: "high" accumulates in FP32 throughout, "low" in BF16 between k tiles.
	Tier     string   `json:"tier,omitempty"`
	Inferred []string `json:"inferred,omitempty"` // parts of the mapping copied from sibling rows
	UsedBy   []string `json:"used_by,omitempty"`  // deployed models and locations in them
	Note     string   `json:"note,omitempty"`
	Upstream string   `json:"upstream,omitempty"` // name of the row in the source
	File     string   `json:"file,omitempty"`     // file of the source
}

// runs reports whether the row's kernel runs and computes correct results.
func (r *Row) runs() bool { return r.Status == OK || r.Status == statusCaveat }

// Standalone reports whether the row times a single kernel on its own. The cost model is fitted to
// such rows.
func (r *Row) Standalone() bool {
	return r.runs() && r.Latency > 0 && (r.Record == Published || r.Record == Sweep || r.Record == Own)
}

// Op returns an op of the row's shape, or nil if there is none, as for attention without a mask. The
// epsilon of norms is 1e-5.
func (r *Row) Op() op.Op {
	s := r.Shape
	switch r.Kernel {
	case GEMM:
		return op.MatMul{M: s.M, K: s.K, N: s.N}
	case GEMV:
		return op.MatMul{M: 1, K: s.K, N: s.N, TransB: true}
	case Attention:
		if !s.Causal {
			return nil
		}
		o := op.Attention{Rows: s.Rows, Heads: s.Heads, KVHeads: s.KVHeads, HeadDim: s.HeadDim,
			HeadFirst: r.Mapping.Layout == "head-first"}
		if o.HeadFirst && s.HeadDim > 64 {
			o.Split = s.HeadDim / 64
		}
		return o
	case Add:
		if s.Broadcast {
			return nil
		}
		return op.Add{Rows: 1, Width: s.N}
	case SiLUMul:
		return op.SiLUMul{Rows: 1, Width: s.N}
	case GELU:
		return op.GELU{Rows: 1, Width: s.N, Tanh: true}
	case RMSNorm:
		return op.RMSNorm{Rows: s.Rows, Width: s.Width, Eps: 1e-5}
	case LayerNorm:
		return op.LayerNorm{Rows: s.Rows, Width: s.Width, Eps: 1e-5}
	case RoPE:
		return op.RoPE{Rows: s.Rows, Heads: 1, HeadDim: s.Width}
	}
	return nil
}

// Validate returns an error if the row is incomplete or inconsistent.
func (r *Row) Validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("xdna2: registry row %q: %s", r.ID, fmt.Sprintf(format, args...))
	}
	switch {
	case r.ID == "" || strings.TrimSpace(r.ID) != r.ID:
		return bad("want an id such as gemm/2048x2048x2048/drain/32.512.32.128/8x4")
	case !slices.Contains(kernels, r.Kernel):
		return bad("unknown kernel %q, want one of %v", r.Kernel, kernels)
	case !slices.Contains(statuses, r.Status):
		return bad("unknown status %q, want one of %v", r.Status, statuses)
	case !slices.Contains(records, r.Record):
		return bad("unknown record %q, want one of %v", r.Record, records)
	case r.Out != dtype.BF16 && r.Out != dtype.F32:
		return bad("the result is %v, want BF16 or F32", r.Out)
	case r.Status != OK && r.Failure == "" && r.Note == "":
		return bad("status is %s, want a failure category or a note", r.Status)
	case len(r.LatencyRange) != 0 && (len(r.LatencyRange) != 2 || r.LatencyRange[0] > r.LatencyRange[1]):
		return bad("latency_range_us is %v, want the minimum and the maximum", r.LatencyRange)
	case r.Launches < 0 || r.Bytes < 0:
		return bad("launches %d and bytes %d must not be negative", r.Launches, r.Bytes)
	case len(r.Mapping.Tile) > 8 || len(r.Mapping.Herd) > 2:
		return bad("tile %v or herd %v has too many numbers", r.Mapping.Tile, r.Mapping.Herd)
	}
	values := []float64{
		r.Latency, r.GFLOPS, r.MeanRelL1, r.MeanRelL1Max, r.MaxAbs, r.MaxRel, r.Pearson, r.ATol, r.RTol,
	}
	for _, x := range append(values, r.LatencyRange...) {
		if x < 0 || math.IsNaN(x) || math.IsInf(x, 0) {
			return bad("time, rate or error is %g, want a finite number that is not negative", x)
		}
	}
	for _, n := range slices.Concat(r.Mapping.Tile, r.Mapping.Herd) {
		if n < 0 || n > maxDim {
			return bad("tile %v or herd %v is out of range", r.Mapping.Tile, r.Mapping.Herd)
		}
	}
	if r.Program != "" {
		if r.Shape != (Shape{}) || r.Launches == 0 {
			return bad("a row of a whole program must have launches and no shape")
		}
		return nil
	}
	if err := r.Shape.validate(r.Kernel); err != nil {
		return bad("%v", err)
	}
	return nil
}

//go:embed registry/*.json
var embedded embed.FS

// file is the JSON form of the rows of one kernel.
type file struct {
	Kernel Kernel `json:"kernel"`
	Source string `json:"source,omitempty"`
	Rows   []Row  `json:"rows"`
}

func (f *file) UnmarshalJSON(data []byte) error {
	type plain file // drops the method
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode((*plain)(f)); err != nil {
		return fmt.Errorf("xdna2: registry: %w", err)
	}
	for i := range f.Rows {
		f.Rows[i].Kernel = f.Kernel
	}
	return nil
}

// published parses the embedded files once.
var published = sync.OnceValue(func() []file {
	names, err := fs.Glob(embedded, "registry/*.json")
	if err != nil {
		panic(err)
	}
	var files []file
	for _, name := range names {
		data, err := embedded.ReadFile(name)
		if err != nil {
			panic(err)
		}
		var f file
		if err := json.Unmarshal(data, &f); err != nil {
			panic(fmt.Sprintf("xdna2: %s: %v", name, err))
		}
		files = append(files, f)
	}
	return files
})

// Registry is a set of rows: the published ones and those that a deployment added. It must not be
// used concurrently with Add.
type Registry struct {
	rows []Row
	byID map[string]int
	own  int // index of the first added row
}

// PublishedRegistry returns a new registry with all published rows.
func PublishedRegistry() *Registry {
	r := &Registry{byID: map[string]int{}}
	for _, f := range published() {
		for _, row := range f.Rows {
			r.byID[row.ID] = len(r.rows)
			r.rows = append(r.rows, row)
		}
	}
	r.own = len(r.rows)
	return r
}

// Add adds a measurement of a deployment. It returns an error if the ID is taken or the row is not
// valid; see [Row.Validate].
func (r *Registry) Add(row Row) error {
	row.Record = Own
	if err := row.Validate(); err != nil {
		return err
	}
	if _, ok := r.byID[row.ID]; ok {
		return fmt.Errorf("xdna2: registry row %q already exists: choose another id", row.ID)
	}
	r.byID[row.ID] = len(r.rows)
	r.rows = append(r.rows, row)
	return nil
}

// Rows returns all rows, published ones first. The caller must not modify them.
func (r *Registry) Rows() []Row { return r.rows }

// added returns the rows that a deployment added.
func (r *Registry) added() []Row { return r.rows[r.own:] }

// row returns the row with the given ID and whether there is one.
func (r *Registry) row(id string) (Row, bool) {
	i, ok := r.byID[id]
	if !ok {
		return Row{}, false
	}
	return r.rows[i], true
}

// MarshalJSON writes the added rows, grouped by kernel. Published rows are embedded in this package
// and are not written.
func (r *Registry) MarshalJSON() ([]byte, error) {
	files := []file{}
	for _, k := range kernels {
		f := file{Kernel: k}
		for _, row := range r.added() {
			if row.Kernel == k {
				f.Rows = append(f.Rows, row)
			}
		}
		if f.Rows != nil {
			files = append(files, f)
		}
	}
	return json.Marshal(files)
}

// UnmarshalJSON sets r to the published rows plus the added rows in data.
func (r *Registry) UnmarshalJSON(data []byte) error {
	var files []file
	if err := json.Unmarshal(data, &files); err != nil {
		return fmt.Errorf("xdna2: registry: %w", err)
	}
	q := PublishedRegistry()
	for _, f := range files {
		for _, row := range f.Rows {
			if row.Record != Own {
				return fmt.Errorf("xdna2: registry row %q: record is %q, want %q: only added rows are stored",
					row.ID, row.Record, Own)
			}
			if err := q.Add(row); err != nil {
				return err
			}
		}
	}
	*r = *q
	return nil
}
