package gatetest_test

import (
	"fmt"
	"hash/fnv"
	"os"
	"sort"
	"strings"
	"testing"

	"github.com/npukit/npukit/gate/gatetest"
	"github.com/npukit/npukit/npu/cpu"
)

// some selects every fiftieth case under the race detector, and logs that.
func some(t *testing.T) func(gatetest.Case) bool {
	if !raced {
		return nil
	}
	t.Log("under the race detector: one case of fifty")
	return func(c gatetest.Case) bool {
		h := fnv.New32a()
		_, _ = h.Write([]byte(c.Name))
		return h.Sum32()%50 == 0
	}
}

// Every kernel variant of the software device that this machine can run passes, for all types of
// activations and weights. With -v the test prints the largest errors, the source of Software's
// numbers.
func TestEveryKernelVariantOfTheCPUConforms(t *testing.T) {
	names := cpu.KernelNames()
	if name := os.Getenv(cpu.KernelsVariable); name != "" {
		names = []string{name} // the others have a run of their own
	}
	opts := &gatetest.ConformanceOptions{References: &gatetest.References{}, Only: some(t)}
	most := worst{}
	for _, kernels := range names {
		t.Run(kernels, func(t *testing.T) {
			d, err := cpu.Open(&cpu.Options{Threads: 2, Kernels: kernels})
			if err != nil {
				t.Skipf("not on this machine: %v", err)
			}
			defer func() {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}()
			most.add(gatetest.Conformance(t, d, opts))
		})
	}
	t.Logf("largest mean relative L1, worst row, peak:\n%v", most)
}

// Whole matrices and up to 2048 rows, with this machine's default kernels. It takes minutes, mostly
// in the oracle.
func TestTheCPUConformsInFull(t *testing.T) {
	if os.Getenv("NPUKIT_LONG") == "" {
		t.Skip("full shapes take minutes: set NPUKIT_LONG=1, as make test-long does")
	}
	var only func(gatetest.Case) bool
	if raced {
		t.Log("under the race detector: only shapes of models, as plans have them")
		only = func(c gatetest.Case) bool {
			return len(c.From) > 0 && c.Open &&
				c.Types[len(c.Types)-1] != c.Types[0]
		}
	}
	d, err := cpu.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	most := worst{}
	most.add(gatetest.Conformance(t, d, &gatetest.ConformanceOptions{Full: true, Only: only}))
	t.Logf("largest mean relative L1, worst row, peak:\n%v", most)
}

// worst is the largest errors by kind of op and type of result: mean relative L1, worst row of 32
// elements or more, peak.
type worst map[string]*[3]float64

func (w worst) add(s gatetest.Summary) {
	for _, r := range s.Results {
		m := r.Report.Metrics
		key := fmt.Sprintf("%s %v", r.Op.Kind(), r.Types[len(r.Types)-1])
		if w[key] == nil {
			w[key] = &[3]float64{}
		}
		w[key][0], w[key][2] = max(w[key][0], m.MeanRelL1), max(w[key][2], m.Peak)
		if m.Width >= 32 {
			w[key][1] = max(w[key][1], m.MaxRowL1)
		}
	}
}

func (w worst) String() string {
	var lines []string
	for k, v := range w {
		lines = append(lines, fmt.Sprintf("%-16s %.2g %.2g %.2g", k, v[0], v[1], v[2]))
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}
