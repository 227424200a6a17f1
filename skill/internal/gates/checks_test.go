package gates

import (
	"testing"

	"github.com/npukit/npukit/gate"
)

// The worst of each figure is kept.
func TestChecksKeepTheWorst(t *testing.T) {
	for _, reversed := range []bool{false, true} {
		list := []Verdict{
			gate.Report{Verdict: gate.Verdict{Judged: 1},
				Metrics: gate.Metrics{Count: 1, Pearson: 0.5, MeanRelL1: 0.1}},
			gate.Report{Verdict: gate.Verdict{Judged: 1},
				Metrics: gate.Metrics{Count: 1, Pearson: 0.999, MeanRelL1: 0.2}},
			gate.LogitsReport{Verdict: gate.Verdict{Judged: 1}, Decided: 10, Agreed: 3, NLLChange: -0.4},
			gate.LogitsReport{Verdict: gate.Verdict{Judged: 1}, Decided: 10, Agreed: 10, NLLChange: 0.001},
			gate.GreedyReport{Verdict: gate.Verdict{Judged: 32}, Tokens: make([]int32, 7), Diverged: true},
			gate.GreedyReport{Verdict: gate.Verdict{Judged: 32}, Tokens: make([]int32, 32)},
		}
		c := Checks{Name: "a test"}
		for i := range list {
			if reversed {
				i = len(list) - 1 - i
			}
			c.take("one", list[i])
		}
		for name, want := range map[string]float64{"pearson": 0.5, "mean_rel_l1": 0.2, "top1": 0.3, "nll_change": -0.4,
			"equal_tokens": 7} {
			if got := c.Figures[name]; got != want {
				t.Errorf("%s is %v, the worst is %v", name, got, want)
			}
		}
	}
}
