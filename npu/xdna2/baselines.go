package xdna2

import (
	_ "embed" // the published figures
	"encoding/json"
	"fmt"
	"slices"
	"sync"
)

// Baseline is a published set of whole-model figures with the conditions that it holds for. Figures of different types, lengths or machines do not
// belong beside each other unless that is said.
type Baseline struct {
	Name       string        `json:"name"` // "paper", "2026-06", "iron", ...
	Source     string        `json:"source"`
	Date       string        `json:"date"`
	Machine    string        `json:"machine"`
	Software   string        `json:"software"`
	Type       string        `json:"type"` // of weights and cache
	Sequence   int           `json:"sequence"`
	Conditions string        `json:"conditions"`
	Rows       []BaselineRow `json:"rows"`
}

// BaselineRow is one model of a baseline. A zero means that the source does not give the figure.
type BaselineRow struct {
	Model        string  `json:"model"`
	TTFT         float64 `json:"ttft_s,omitempty"` // seconds to the first token
	TokensPerSec float64 `json:"tokens_per_s,omitempty"`
	ArrayPrefill float64 `json:"array_prefill_s,omitempty"` // seconds of a prefill in which the array runs
	RhoPrefill   float64 `json:"rho_prefill,omitempty"`
	RhoDecode    float64 `json:"rho_decode,omitempty"`
	Note         string  `json:"note,omitempty"`
}

// Row finds a model of the baseline.
func (b Baseline) Row(model string) (BaselineRow, bool) {
	i := slices.IndexFunc(b.Rows, func(r BaselineRow) bool { return r.Model == model })
	if i < 0 {
		return BaselineRow{}, false
	}
	return b.Rows[i], true
}

//go:embed baselines.json
var baselinesJSON []byte

var parsedBaselines = sync.OnceValue(func() []Baseline {
	var list []Baseline
	if err := json.Unmarshal(baselinesJSON, &list); err != nil {
		panic(fmt.Sprintf("xdna2: baselines.json: %v", err))
	}
	return list
})

// Baselines are all published sets of figures.
func Baselines() []Baseline {
	list := slices.Clone(parsedBaselines())
	for i := range list {
		list[i].Rows = slices.Clone(list[i].Rows)
	}
	return list
}

// BaselineNamed finds a set of figures by its name.
func BaselineNamed(name string) (Baseline, bool) {
	list := Baselines()
	i := slices.IndexFunc(list, func(b Baseline) bool { return b.Name == name })
	if i < 0 {
		return Baseline{}, false
	}
	return list[i], true
}
