package gatetest_test

import (
	"fmt"
	"hash/fnv"
	"sort"
	"strings"
	"testing"

	"github.com/npukit/npukit/gate/gatetest"
	"github.com/npukit/npukit/npu/cpu"
)

// variants are the kernels of npu/cpu, plain Go first.
var variants = []string{"go", "generic", "avx2", "avx512", "avx512bf16"}

// some is what is left of the suite under the race detector, and says so: every twentieth case.
func some(t *testing.T) func(gatetest.Case) bool {
	if !raced {
		return nil
	}
	t.Log("under the race detector: one case of twenty")
	return func(c gatetest.Case) bool {
		h := fnv.New32a()
		_, _ = h.Write([]byte(c.Name))
		return h.Sum32()%20 == 0
	}
}

// The software device is right in every kernel variant that this machine can run, for all types of activations and weights. With -v the test prints the
// largest errors, which is where Software has its numbers from.
func TestEveryKernelVariantOfTheCPUConforms(t *testing.T) {
	opts := &gatetest.ConformanceOptions{References: &gatetest.References{}, Only: some(t)}
	most := worst{}
	for _, kernels := range variants {
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

// worst is the largest errors by kind of op and type of result: mean relative L1, worst row of 32 elements or more, peak.
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
