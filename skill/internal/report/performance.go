package report

import (
	"errors"
	"fmt"
	"math"

	"github.com/npukit/npukit/internal/published"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/skill/internal/journal"
)

// Performance is the report of phase 6: the speed of the plan, and where its time goes.
type Performance struct {
	Model        string               `json:"model"`
	Device       string               `json:"device"`
	Plan         string               `json:"plan_sha256"`
	Predicted    bool                 `json:"predicted"` // by Clock; else measured
	Clock        string               `json:"clock"`
	Note         string               `json:"note,omitempty"`
	Positions    int                  `json:"positions"` // of the prompt
	TTFT         float64              `json:"ttft_s"`
	TokensPerSec float64              `json:"tokens_per_s"`
	TTFTNoise    float64              `json:"ttft_noise"`
	DecodeNoise  float64              `json:"decode_noise"`
	TTFTRange    [2]float64           `json:"ttft_range_s,omitzero"`
	TokenRange   [2]float64           `json:"token_range_s,omitzero"`
	Repetitions  int                  `json:"repetitions"`
	Others       *float64             `json:"others_share,omitempty"` // see journal.Measurement
	First        *journal.Measurement `json:"first,omitempty"`        // of the first plan, taken in the same way
	Paired       *journal.Paired      `json:"paired,omitempty"`       // with the first plan; nil for a prediction
	Rho          []plan.Rho           `json:"rho,omitempty"`
	HostShare    float64              `json:"host_share_prefill"` // share of the host in TTFT; 0 if not known
	HostDecode   float64              `json:"host_share_decode"`
	Prefill      []ProgramTime        `json:"prefill,omitempty"` // program by program, of a prediction
	Decode       []ProgramTime        `json:"decode,omitempty"`
	Baselines    []BaselineFigure     `json:"baselines"` // published for the same model
}

// ProgramTime is the time of a program in a pass.
type ProgramTime struct {
	Program  string  `json:"program"`
	On       string  `json:"on"`
	Count    int     `json:"count"`
	Write    int     `json:"bytes_written"`
	Run      float64 `json:"run_s"`
	Read     int     `json:"bytes_read"`
	Time     float64 `json:"time_s"`
	Roofline float64 `json:"roofline_s"`
}

// BaselineFigure is a published figure with its conditions.
type BaselineFigure struct {
	Baseline   string                `json:"baseline"`
	Conditions string                `json:"conditions"`
	Row        published.BaselineRow `json:"row"`
}

// PerformanceOf returns the report of the last measurement of the plan.
func PerformanceOf(s *journal.State) (*Performance, error) {
	m, ok := s.LastMeasured(s.Plan)
	if !ok {
		return nil, errors.New("skill: the plan has not been measured")
	}
	r := &Performance{Model: s.Subject.Name, Device: m.Device, Plan: m.Plan, Predicted: m.Predicted, Clock: m.Clock,
		Note: m.Note, Positions: m.Positions, TTFT: m.TTFT,
		TokensPerSec: m.TokensPerSec, TTFTNoise: m.TTFTNoise, DecodeNoise: m.DecodeNoise, Repetitions: m.Repetitions,
		TTFTRange: m.TTFTRange, TokenRange: m.TokenRange,
		Others: m.Others, Baselines: baselines(s.Subject.Name)}
	if first, _ := s.FirstMeasured(); first.Plan != m.Plan && first.Predicted == m.Predicted &&
		first.Positions == m.Positions {
		first.Estimate, first.Paired = nil, nil
		r.First = &first
		if m.Paired != nil && m.Paired.Plan == first.Plan {
			r.Paired = m.Paired
		}
	}
	if est := m.Estimate; est != nil {
		r.Rho, r.Prefill, r.Decode = est.Rho, programTimes(est.Prefill), programTimes(est.Decode)
		r.HostShare, r.HostDecode = 1-est.Prefill.Array/est.Prefill.Time, 1-est.Decode.Array/est.Decode.Time
	}
	return r, nil
}

// Check returns an error if the figures and their comparison do not agree.
func (r *Performance) Check() error {
	if r.Paired == nil {
		return nil
	}
	if r.First == nil {
		return errors.New("there is a comparison, but no first plan")
	}
	for name, x := range map[string]struct {
		t             *journal.Turns
		before, after float64
	}{
		"first_token": {&r.Paired.First, r.First.TTFT, r.TTFT},
		"token":       {&r.Paired.Token, 1 / r.First.TokensPerSec, 1 / r.TokensPerSec},
	} {
		for field, pair := range map[string][2]float64{"before_s": {x.t.Before, x.before},
			"after_s": {x.t.After, x.after},
			"gain":    {1 - x.t.Gain, x.after / x.before}} {
			if !(math.Abs(pair[0]/pair[1]-1) < 1e-9) {
				return fmt.Errorf("paired.%s.%s does not agree with the figures: %g, %g", name, field, pair[0], pair[1])
			}
		}
	}
	return nil
}

func programTimes(p *plan.PassEstimate) []ProgramTime {
	var list []ProgramTime
	for _, s := range p.Steps {
		list = append(list, ProgramTime{s.Program, s.On, s.Count, s.Write, s.Run, s.Read, s.Time, s.Roofline})
	}
	return list
}

// baselines returns the published figures of the model of that name.
func baselines(name string) []BaselineFigure {
	list := []BaselineFigure{}
	for _, b := range published.Baselines() {
		if row, ok := b.Row(name); ok {
			list = append(list, BaselineFigure{b.Name, b.Machine + "; " + b.Software + "; " + b.Type + "; " +
				b.Conditions, row})
		}
	}
	return list
}
