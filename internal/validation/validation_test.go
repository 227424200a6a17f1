package validation

import (
	"math"
	"testing"

	"github.com/npukit/npukit/internal/published"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu/xdna2"
)

func wholes(t *testing.T) []Whole {
	t.Helper()
	list, err := Wholes()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func report(t *testing.T, wholes []Whole, predicted []Prediction) []float64 {
	t.Helper()
	errors := Errors(wholes, predicted)
	for i, w := range wholes {
		t.Logf("%-13s TTFT %.2f s for %.2f (%+5.1f %%), %.1f tokens/s for %.1f (%+5.1f %%)", w.Name,
			predicted[i].TTFT, w.TTFT, 100*errors[2*i],
			predicted[i].TokensPerSec, w.TokensPerSec, 100*errors[2*i+1])
	}
	t.Logf("median %.1f %%, p90 %.1f %%, worst %.1f %%", 100*Quantile(errors, 0.5), 100*Quantile(errors, 0.9),
		100*Quantile(errors, 1))
	return errors
}

// Without anything fitted to whole models, kernel rows, single programs and micro-figures predict
// the nine published models.
func TestWholeModelsAPriori(t *testing.T) {
	list := wholes(t)
	predicted, err := Predict(list, xdna2.APriori())
	if err != nil {
		t.Fatal(err)
	}
	if got := Quantile(report(t, list, predicted), 0.5); got > 0.10 {
		t.Errorf("the median error is %.1f %%, want at most 10 %%", 100*got)
	}
}

// Three globals for nine models; each model is predicted by a fit without it.
func TestWholeModelsLeaveOneOut(t *testing.T) {
	list := wholes(t)
	predicted, err := LeaveOneOut(list)
	if err != nil {
		t.Fatal(err)
	}
	errors := report(t, list, predicted)
	above := 0
	for _, e := range errors {
		if math.Abs(e) > 0.15 {
			above++
		}
	}
	if median := Quantile(errors, 0.5); math.Abs(median-xdna2.HeldOutError) > 0.0005 {
		t.Errorf("the median error is %.2f %%, but xdna2.HeldOutError says %.2f %%", 100*median,
			100*xdna2.HeldOutError)
	}
	if median, worst := Quantile(errors, 0.5), Quantile(errors, 1); median > 0.07 || above > 2 || worst > 0.25 {
		t.Errorf("median %.1f %%, %d above 15 %%, worst %.1f %%; want at most 7 %%, 2, 25 %%", 100*median, above,
			100*worst)
	}
}

// referenceClock returns a clock with the host of the published figures.
func referenceClock(t *testing.T) *xdna2.Clock {
	t.Helper()
	host, err := xdna2.HostProfile("reference")
	if err != nil {
		t.Fatal(err)
	}
	return xdna2.NewClock(host)
}

// The constants of the reference profile are those of the fit to all nine models.
func TestReferenceProfileMatchesFit(t *testing.T) {
	fit, err := Fit(wholes(t))
	if err != nil {
		t.Fatal(err)
	}
	ref := globalsOf(referenceClock(t))
	for _, p := range []struct {
		name      string
		got, want float64
	}{{"factor", fit.Factor, ref.Factor}, {"prefill layer, us", fit.PrefillLayer, ref.PrefillLayer},
		{"decode call, us", fit.DecodeCall, ref.DecodeCall}} {
		if math.Abs(p.got/p.want-1) > 0.01 {
			t.Errorf("%s: fit %.5g, profile %.5g", p.name, p.got, p.want)
		}
	}
}

// The time breakdown of a prefill of Llama-3.2-1B against its published profile: 1062 ms on the
// array, 51 ms of transfers.
func TestLlamaPrefillProfile(t *testing.T) {
	e, err := wholes(t)[0].Plan.Estimate(referenceClock(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("array %.0f ms, calls %.0f, transfers %.0f, host %.0f", 1e3*e.Prefill.Array, 1e3*e.Prefill.Calls,
		1e3*e.Prefill.Transfers, 1e3*e.Prefill.HostWork)
	if math.Abs(e.Prefill.Array/1.062-1) > 0.10 || math.Abs(e.Prefill.Transfers/0.051-1) > 0.25 {
		t.Errorf("array %.3f s, transfers %.3f s; published 1.062 and 0.051", e.Prefill.Array, e.Prefill.Transfers)
	}
}

// Array time of prefills, which is published separately and used in no fit.
func TestPrefillArrayTimeAgainstPublished(t *testing.T) {
	list := wholes(t)
	predicted, err := Predict(list, xdna2.APriori())
	if err != nil {
		t.Fatal(err)
	}
	var errors []float64
	for i, w := range list {
		if w.Array == 0 {
			continue
		}
		errors = append(errors, predicted[i].Array/w.Array-1)
		t.Logf("%-13s %.2f s, published %.2f (%+5.1f %%)", w.Name, predicted[i].Array, w.Array,
			100*errors[len(errors)-1])
	}
	if median, worst := Quantile(errors, 0.5), Quantile(errors, 1); median > 0.10 || worst > 0.25 {
		t.Errorf("median %.1f %%, worst %.1f %%, want at most 10 and 25", 100*median, 100*worst)
	}
}

// A plan of single ops has more programs than contexts. Reusing contexts helps a little, merging
// helps most, and merged plans reopen none.
func TestContextsArePriced(t *testing.T) {
	clock := xdna2.NewClock(xdna2.HostNpukit())
	for _, m := range published.Models() {
		knobs := plan.NaiveKnobs()
		knobs.Kernels = plan.TunedKnobs().Kernels
		estimate := func() *plan.Estimate {
			p, err := plan.NewNPU(&m.Config, &plan.NPUOptions{Knobs: &knobs})
			if err != nil {
				t.Fatal(err)
			}
			e, err := p.Estimate(clock)
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		naive := estimate()
		knobs.ContextReuse = true
		kept := estimate()
		knobs.MergePost, knobs.MergePre = true, true
		merged := estimate()
		if kept.TTFT > 0.98*naive.TTFT || kept.TokensPerSec < 1.02*naive.TokensPerSec || merged.TTFT > kept.TTFT/1.5 {
			t.Errorf("%s: first token after %.2f s, with contexts kept %.2f, merged too %.2f; %.2f, %.2f and %.2f "+
				"tokens/s", m.Name, naive.TTFT, kept.TTFT, merged.TTFT,
				naive.TokensPerSec, kept.TokensPerSec, merged.TokensPerSec)
		}
		if naive.Prefill.Opened != naive.Prefill.Dispatches || merged.Decode.Opened != 0 ||
			merged.Prefill.Opened > merged.Contexts.Prefill {
			t.Errorf("%s: contexts opened: %d of %d dispatches; merged %d in a prompt of %d programs and %d in a "+
				"token", m.Name, naive.Prefill.Opened, naive.Prefill.Dispatches,
				merged.Prefill.Opened, merged.Contexts.Prefill, merged.Decode.Opened)
		}
		if c := merged.Contexts; c.All > c.Kept && merged.ToDecode == 0 || c.All <= c.Kept &&
			merged.Prefill.Opened > 0 {
			t.Errorf("%s: %+v, a prompt opens %d and the first token waits %.3f s", m.Name, c, merged.Prefill.Opened,
				merged.ToDecode)
		}
	}
}
