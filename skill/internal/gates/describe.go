package gates

import (
	"fmt"
	"strings"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/gate/golden"
)

// Reasons returns the reasons of a verdict one by one.
func Reasons(v Verdict) []gate.Reason {
	switch r := v.(type) {
	case gate.Report:
		return r.Reasons
	case gate.LogitsReport:
		return r.Reasons
	case gate.GreedyReport:
		return r.Reasons
	case gate.DeterminismReport:
		return r.Reasons
	case golden.Report:
		return r.Reasons
	case Checks:
		return r.Reasons
	}
	if err := v.Err(); err != nil {
		return []gate.Reason{{Metric: "custom", Text: err.Error()}}
	}
	return nil
}

// Describe returns a verdict in a line, its figures, and where its bounds come from.
func Describe(v Verdict) (line string, figures map[string]float64, bounds string) {
	switch r := v.(type) {
	case gate.Report:
		figures = map[string]float64{"max_abs": r.Metrics.MaxAbs, "mean_rel_l1": r.Metrics.MeanRelL1,
			"pearson": r.Metrics.Pearson, "peak": r.Metrics.Peak}
		line = fmt.Sprintf("mean relative error %.3g, largest absolute %.3g, Pearson %.7g over %d elements",
			r.Metrics.MeanRelL1, r.Metrics.MaxAbs, r.Metrics.Pearson,
			r.Metrics.Count)
		bounds = r.Tolerance.Note
	case gate.LogitsReport:
		figures = map[string]float64{"kl_mean": r.KLMean, "kl_p90": r.KLP90, "top1": r.Top1(),
			"nll_change": r.NLLChange}
		line = fmt.Sprintf("KL mean %.3g, first choices agree at %.2f %%, NLL %+.3f %% over %d positions", r.KLMean,
			100*r.Top1(), 100*r.NLLChange, r.Judged)
		if r.Text != "" {
			line += ", ids: " + r.Text
		}
		bounds = r.Thresholds.Note
	case gate.GreedyReport:
		line = fmt.Sprintf("all %d tokens are equal", r.Judged)
		if r.Diverged {
			line = fmt.Sprintf("the first %d of %d tokens are equal", len(r.Tokens), r.Judged)
		}
		figures = map[string]float64{"equal_tokens": float64(len(r.Tokens))}
	case gate.DeterminismReport:
		line = fmt.Sprintf("%d positions scored twice", r.Judged)
	case golden.Report:
		figures = map[string]float64{"kl_mean": r.KLMean, "nll_change": r.NLLChange}
		line = fmt.Sprintf("NLL %+.3f %%, KL mean %.3g over %d positions", 100*r.NLLChange, r.KLMean, r.Judged)
		bounds = r.Thresholds.Note
	case partVerdict:
		return r.Line, r.Figures, r.Bounds
	case Checks:
		return r.line(), r.Figures, r.Bounds
	default:
		line, _, _ = strings.Cut(v.String(), "\n")
	}
	for name, x := range figures {
		if x != x || x > 1e300 || x < -1e300 { // not in JSON
			delete(figures, name)
		}
	}
	return line, figures, bounds
}
