// Package validation compares predictions of the virtual XDNA 2 with published measurements of
// whole models.
package validation

import (
	"fmt"
	"math"
	"slices"

	"github.com/npukit/npukit/internal/published"
	"github.com/npukit/npukit/internal/robustfit"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu/xdna2"
)

// Whole is a published model with its plan and its measured figures.
type Whole struct {
	Name         string
	Plan         *plan.Plan
	TTFT         float64 // published seconds to the first token, 2048 positions
	TokensPerSec float64 // published
	Array        float64 // published seconds of prefill on the array, 0 if unknown
	PaperTTFT    float64 // Table II of the paper, an older version of the same code
	PaperTokens  float64
}

// Wholes returns the nine models with the figures of the 2026-06 table.
func Wholes() ([]Whole, error) {
	table, ok := published.FindBaseline("2026-06")
	paper, okPaper := published.FindBaseline("paper")
	if !ok || !okPaper {
		return nil, fmt.Errorf("validation: npu/xdna2 has no table 2026-06 or paper")
	}
	var list []Whole
	for _, m := range published.Models() {
		knobs := plan.TunedKnobs()
		if m.HeadFirst {
			knobs.Layout = ""
		}
		p, err := plan.NewNPU(&m.Config, &plan.NPUOptions{Knobs: &knobs})
		if err != nil {
			return nil, err
		}
		row, ok := table.Row(m.Name)
		older, okOlder := paper.Row(m.Name)
		if !ok || !okOlder {
			return nil, fmt.Errorf("validation: no published figures of %s", m.Name)
		}
		list = append(list, Whole{m.Name, p, row.TTFT, row.TokensPerSec, row.ArrayPrefill, older.TTFT,
			older.TokensPerSec})
	}
	return list, nil
}

// Prediction has the predicted figures of a model.
type Prediction struct {
	Name         string
	TTFT         float64
	TokensPerSec float64
	Array        float64
}

// Errors returns the relative errors of predictions: TTFT and tokens per second of each model.
func Errors(wholes []Whole, predicted []Prediction) []float64 {
	var list []float64
	for i, w := range wholes {
		list = append(list, predicted[i].TTFT/w.TTFT-1, predicted[i].TokensPerSec/w.TokensPerSec-1)
	}
	return list
}

// Quantile returns the q-quantile of the absolute errors.
func Quantile(errors []float64, q float64) float64 {
	sizes := make([]float64, len(errors))
	for i, e := range errors {
		sizes[i] = math.Abs(e)
	}
	slices.Sort(sizes)
	at := q * float64(len(sizes)-1)
	low := int(at)
	if low+1 >= len(sizes) {
		return sizes[low]
	}
	return sizes[low] + (at-float64(low))*(sizes[low+1]-sizes[low])
}

// Predict returns the predictions of all models with one clock.
func Predict(wholes []Whole, clock *xdna2.Clock) ([]Prediction, error) {
	var list []Prediction
	for _, w := range wholes {
		p, err := predict(w, clock)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

func predict(w Whole, clock *xdna2.Clock) (Prediction, error) {
	e, err := w.Plan.Estimate(clock)
	if err != nil {
		return Prediction{}, fmt.Errorf("validation: %s: %w", w.Name, err)
	}
	return Prediction{w.Name, e.TTFT, e.TokensPerSec, e.Prefill.Array}, nil
}

// Globals are the three parameters that may be fitted to whole models. No parameter is specific to
// one model.
type Globals struct {
	Factor       float64 // time of kernels in a program relative to their time alone
	PrefillLayer float64 // us of host work per layer of prefill
	DecodeCall   float64 // us per dispatch in decode
}

// Clock returns the a priori clock with these globals.
func (g Globals) Clock() *xdna2.Clock {
	c := xdna2.APriori()
	c.Deployed.Factor, c.Host.PrefillLayer, c.Host.DecodeCall = g.Factor, g.PrefillLayer, g.DecodeCall
	return c
}

func globalsOf(c *xdna2.Clock) Globals {
	return Globals{c.Deployed.Factor, c.Host.PrefillLayer, c.Host.DecodeCall}
}

// linear has a model's times as linear functions of the globals. Estimating a plan for each step of
// a fit would take minutes.
type linear struct {
	ttft, factor, layer float64 // TTFT at the origin, and its slopes
	token, call         float64
}

func linearOf(w Whole) (linear, error) {
	at := func(g Globals) (Prediction, error) { return predict(w, g.Clock()) }
	origin, err := at(Globals{1, 0, 0})
	if err != nil {
		return linear{}, err
	}
	factor, err := at(Globals{2, 0, 0})
	if err != nil {
		return linear{}, err
	}
	host, err := at(Globals{1, 1e3, 1e3})
	if err != nil {
		return linear{}, err
	}
	return linear{
		ttft: origin.TTFT, factor: factor.TTFT - origin.TTFT, layer: (host.TTFT - origin.TTFT) / 1e3,
		token: 1 / origin.TokensPerSec, call: (1/host.TokensPerSec - 1/origin.TokensPerSec) / 1e3,
	}, nil
}

func (l linear) residuals(w Whole, g Globals) (ttft, token float64) {
	ttft = math.Log((l.ttft + (g.Factor-1)*l.factor + g.PrefillLayer*l.layer) / w.TTFT)
	return ttft, math.Log((l.token + g.DecodeCall*l.call) * w.TokensPerSec)
}

// Fit returns the globals fitted to models, starting from the a priori clock.
func Fit(wholes []Whole) (Globals, error) {
	lines := make([]linear, len(wholes))
	for i, w := range wholes {
		var err error
		if lines[i], err = linearOf(w); err != nil {
			return Globals{}, err
		}
	}
	g := globalsOf(xdna2.APriori())
	robustfit.Minimize([]*float64{&g.Factor, &g.PrefillLayer, &g.DecodeCall}, 2*len(wholes), func(dst []float64) {
		for i, w := range wholes {
			dst[2*i], dst[2*i+1] = lines[i].residuals(w, g)
		}
	})
	return g, nil
}

// LeaveOneOut returns a prediction of each model with globals fitted to the others.
func LeaveOneOut(wholes []Whole) ([]Prediction, error) {
	var list []Prediction
	for i, w := range wholes {
		others := slices.Delete(slices.Clone(wholes), i, i+1)
		g, err := Fit(others)
		if err != nil {
			return nil, err
		}
		p, err := predict(w, g.Clock())
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}
