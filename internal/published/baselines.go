package published

import (
	_ "embed" // the published figures
	"encoding/json"
	"fmt"
	"slices"
	"sync"
)

// Baseline is a published table of whole-model figures and its conditions. Figures of different
// types, lengths or machines are not comparable.
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

// BaselineRow is one model of a baseline. Zero means that the source has no figure.
type BaselineRow struct {
	Model        string  `json:"model"`
	TTFT         float64 `json:"ttft_s,omitempty"` // seconds to the first token
	TokensPerSec float64 `json:"tokens_per_s,omitempty"`
	ArrayPrefill float64 `json:"array_prefill_s,omitempty"` // seconds of prefill on the array
	RhoPrefill   float64 `json:"rho_prefill,omitempty"`
	RhoDecode    float64 `json:"rho_decode,omitempty"`
	Note         string  `json:"note,omitempty"`
}

// Row returns the row of a model and whether the baseline has one.
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
		panic(fmt.Sprintf("published: baselines.json: %v", err))
	}
	return list
})

// Baselines returns all published tables.
func Baselines() []Baseline {
	list := slices.Clone(parsedBaselines())
	for i := range list {
		list[i].Rows = slices.Clone(list[i].Rows)
	}
	return list
}

// FindBaseline returns the table with the given name and whether there is one.
func FindBaseline(name string) (Baseline, bool) {
	list := Baselines()
	i := slices.IndexFunc(list, func(b Baseline) bool { return b.Name == name })
	if i < 0 {
		return Baseline{}, false
	}
	return list[i], true
}
