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
)

// Status says what became of a row's kernel.
type Status string

const (
	OK              Status = "ok"              // built, ran, every element within its tolerance
	Caveat          Status = "caveat"          // runs, but Failure or Note says what to know first
	Fails           Status = "fails"           // does not build or does not run
	Corrupt         Status = "corrupt"         // builds, runs, and writes wrong numbers without an error
	ClaimedFail     Status = "claimed_fail"    // said to fail by a computed argument that passing rows contradict
	Uncharacterized Status = "uncharacterized" // abandoned before it was known
)

var statuses = []Status{OK, Caveat, Fails, Corrupt, ClaimedFail, Uncharacterized}

// Record says how a row was measured.
type Record string

const (
	Published  Record = "registry"   // a registry row: one launch, alone, timed by start and wait
	Sweep      Record = "sweep"      // a point of a parameter sweep, alone, timed in the same way
	InSitu     Record = "in-situ"    // inside a deployed ELF, among other launches
	Remeasured Record = "remeasured" // a registry row measured again
	FormatAB   Record = "format-ab"  // the same kernel as ELF and as xclbin, side by side
	Own        Record = "own"        // added by a deployment
)

var records = []Record{Published, Sweep, InSitu, Remeasured, FormatAB, Own}

// Row is one kernel in one shape under one mapping, and what is known of it. Times are microseconds, rates GFLOP/s; a multiply-add is two
// operations. A zero means that the source does not say.
type Row struct {
	ID       string      `json:"id"` // stable: "gemm/2048x2048x2048/drain/32.512.32.128/8x4"
	Kernel   Kernel      `json:"-"`  // the file's
	Shape    Shape       `json:"shape,omitzero"`
	Out      dtype.Type  `json:"out"` // type of the result; all that these kernels read is BF16
	Mapping  npu.Mapping `json:"mapping"`
	Binary   string      `json:"binary,omitempty"` // "xclbin", "elf", or "harness" where the source does not tell which
	Record   Record      `json:"record"`
	Status   Status      `json:"status"`
	Failure  string      `json:"failure,omitempty"` // category: "l1_overflow", "silent_corruption_k_tiling"
	Program  string      `json:"program,omitempty"` // the row times a whole program of so many launches, which together read so many bytes
	Launches int         `json:"launches,omitempty"`
	Bytes    int         `json:"bytes,omitempty"`

	Latency      float64   `json:"latency_us,omitempty"`
	LatencyRange []float64 `json:"latency_range_us,omitempty"`
	Derived      bool      `json:"latency_derived,omitempty"` // the latency was computed back from a published rate
	GFLOPS       float64   `json:"gflops,omitempty"`

	MeanRelL1    float64 `json:"mean_rel_l1,omitempty"` // mean|a-e| / mean|e| against the FP32 reference in the result's type
	MeanRelL1Max float64 `json:"mean_rel_l1_max,omitempty"`
	MaxAbs       float64 `json:"max_abs,omitempty"`
	MaxRel       float64 `json:"max_rel,omitempty"`
	Pearson      float64 `json:"pearson,omitempty"`
	ATol         float64 `json:"atol,omitempty"` // the gate it was measured under: |a-e| <= atol + rtol*|e|, every element
	RTol         float64 `json:"rtol,omitempty"`

	Tier     string   `json:"tier,omitempty"`     // precision of a GEMM: "high" accumulates in FP32 throughout, "low" in BF16 between k tiles
	Inferred []string `json:"inferred,omitempty"` // parts of the mapping that the source leaves out and that were taken from the row's siblings
	UsedBy   []string `json:"used_by,omitempty"`  // deployed models and where in them
	Note     string   `json:"note,omitempty"`
	Upstream string   `json:"upstream,omitempty"` // the row's name in the source's extract
	File     string   `json:"file,omitempty"`     // where in the source it stands
}

// Runs reports whether the row's kernel computes what it should.
func (r *Row) Runs() bool { return r.Status == OK || r.Status == Caveat }

// Standalone reports whether the row times one kernel by itself: what the cost model is fitted to.
func (r *Row) Standalone() bool {
	return r.Runs() && r.Latency > 0 && (r.Record == Published || r.Record == Sweep || r.Record == Own)
}

// Validate reports a row that contradicts itself.
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
		return bad("it is %s: say why, with a failure category or a note", r.Status)
	case len(r.LatencyRange) != 0 && (len(r.LatencyRange) != 2 || r.LatencyRange[0] > r.LatencyRange[1]):
		return bad("latency_range_us is %v, want the lowest and the highest", r.LatencyRange)
	case r.Launches < 0 || r.Bytes < 0:
		return bad("launches %d and bytes %d must not be negative", r.Launches, r.Bytes)
	case len(r.Mapping.Tile) > 8 || len(r.Mapping.Herd) > 2:
		return bad("tile %v or herd %v has too many numbers", r.Mapping.Tile, r.Mapping.Herd)
	}
	for _, x := range append([]float64{r.Latency, r.GFLOPS, r.MeanRelL1, r.MeanRelL1Max, r.MaxAbs, r.MaxRel, r.Pearson, r.ATol, r.RTol},
		r.LatencyRange...) {
		if x < 0 || math.IsNaN(x) || math.IsInf(x, 0) {
			return bad("%g is not a time, a rate or an error: want a finite number, not negative", x)
		}
	}
	for _, n := range slices.Concat(r.Mapping.Tile, r.Mapping.Herd) {
		if n < 0 || n > maxDim {
			return bad("tile %v or herd %v is out of range", r.Mapping.Tile, r.Mapping.Herd)
		}
	}
	if r.Program != "" {
		if r.Shape != (Shape{}) || r.Launches == 0 {
			return bad("a row for a whole program has launches and no shape")
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

// Sources gives, for each kernel, where its published rows come from.
func Sources() map[Kernel]string {
	sources := map[Kernel]string{}
	for _, f := range published() {
		sources[f.Kernel] = f.Source
	}
	return sources
}

// file is the form of a registry on disk: one kernel's rows.
type file struct {
	Kernel Kernel `json:"kernel"`
	Source string `json:"source,omitempty"`
	Rows   []Row  `json:"rows"`
}

func (f *file) UnmarshalJSON(data []byte) error {
	type plain file // without this method
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

// published parses the embedded files once; a test holds that they parse.
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

// Registry is a set of rows: the published ones, and those that a deployment has added. It is not safe for use while Add runs.
type Registry struct {
	rows []Row
	byID map[string]int
	own  int // rows from here on were added
}

// PublishedRegistry is a new registry with all published rows, to which a deployment adds its own.
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

// Add adds a deployment's own row. Its id must be new, and it must not contradict itself (see [Row.Validate]).
func (r *Registry) Add(row Row) error {
	row.Record = Own
	if err := row.Validate(); err != nil {
		return err
	}
	if _, ok := r.byID[row.ID]; ok {
		return fmt.Errorf("xdna2: registry row %q is there already: give the new measurement its own id", row.ID)
	}
	r.byID[row.ID] = len(r.rows)
	r.rows = append(r.rows, row)
	return nil
}

// Rows are all rows, the published ones first. The caller must not change them.
func (r *Registry) Rows() []Row { return r.rows }

// Added are the rows that a deployment has added.
func (r *Registry) Added() []Row { return r.rows[r.own:] }

// Row finds a row by its id.
func (r *Registry) Row(id string) (Row, bool) {
	i, ok := r.byID[id]
	if !ok {
		return Row{}, false
	}
	return r.rows[i], true
}

// MarshalJSON writes the added rows, kernel by kernel: the published ones are part of this package.
func (r *Registry) MarshalJSON() ([]byte, error) {
	files := []file{}
	for _, k := range kernels {
		f := file{Kernel: k}
		for _, row := range r.Added() {
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

// UnmarshalJSON is the inverse of MarshalJSON: the published rows, and those in data beside them.
func (r *Registry) UnmarshalJSON(data []byte) error {
	var files []file
	if err := json.Unmarshal(data, &files); err != nil {
		return fmt.Errorf("xdna2: registry: %w", err)
	}
	q := PublishedRegistry()
	for _, f := range files {
		for _, row := range f.Rows {
			if row.Record != Own {
				return fmt.Errorf("xdna2: registry row %q: record is %q, want %q: published rows are not written again",
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
