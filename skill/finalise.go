package skill

import (
	"context"
	"errors"
	"slices"

	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/npu/xdna2"
)

// Performance is what phase 6 reports: how fast the plan is, and where its time goes.
type Performance struct {
	Model        string           `json:"model"`
	Device       string           `json:"device"`
	Plan         string           `json:"plan_sha256"`
	Predicted    bool             `json:"predicted"` // by Clock; else measured
	Clock        string           `json:"clock"`
	Note         string           `json:"note,omitempty"`
	Positions    int              `json:"positions"` // of the prompt
	TTFT         float64          `json:"ttft_s"`
	TokensPerSec float64          `json:"tokens_per_s"`
	TTFTNoise    float64          `json:"ttft_noise"`
	DecodeNoise  float64          `json:"decode_noise"`
	Repetitions  int              `json:"repetitions"`     // the fastest, of which the figures are medians
	First        *Measurement     `json:"first,omitempty"` // of the first plan that was measured, taken in the same way as these
	Rho          []model.Rho      `json:"rho,omitempty"`
	HostShare    float64          `json:"host_share_prefill"` // of the time to the first token that is not the array's; 0 where that means nothing
	HostDecode   float64          `json:"host_share_decode"`
	Prefill      []ProgramTime    `json:"prefill,omitempty"` // program by program, of a prediction
	Decode       []ProgramTime    `json:"decode,omitempty"`
	Baselines    []BaselineFigure `json:"baselines"` // published for the same model, under their own conditions
}

// ProgramTime is where the time of a pass goes.
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

// BaselineFigure is a published figure with what it holds for.
type BaselineFigure struct {
	Baseline   string            `json:"baseline"`
	Conditions string            `json:"conditions"`
	Row        xdna2.BaselineRow `json:"row"`
}

// finalMeasurement takes the figures that are reported: once more, of the plan as it is now, and of the first one, since figures that stand beside each other are taken in the
// same way and at the same time.
func (e *Env) finalMeasurement(ctx context.Context) error {
	if err := e.d.writePlan(); err != nil {
		return err
	}
	if list := e.d.state.Measured; len(list) > 0 && !list[0].Value.Predicted && list[0].Value.Plan != e.d.state.Plan {
		if r, ok := e.d.state.recipes[list[0].Value.Plan]; ok {
			if _, err := e.with(r.clone()).Measure(ctx); err != nil {
				return err
			}
		}
	}
	_, err := e.Measure(ctx)
	return err
}

// firstMeasured is the first plan's measurement: that of phase 6, where there is one.
func (s *State) firstMeasured() Measurement {
	first := s.Measured[0].Value
	for _, m := range slices.Backward(s.Measured) {
		if m.Phase == Finalise && m.Value.Plan == first.Plan {
			return m.Value
		}
	}
	return first
}

// Performance is the report of phase 6, derived from the last measurement of the plan.
func (d *Deployment) Performance() (*Performance, error) {
	s := d.state
	m, ok := s.lastMeasured(s.Plan)
	if !ok {
		return nil, errors.New("skill: the plan has not been measured")
	}
	r := &Performance{Model: s.Subject.Name, Device: m.Device, Plan: m.Plan, Predicted: m.Predicted, Clock: m.Clock, Note: m.Note, Positions: m.Positions, TTFT: m.TTFT,
		TokensPerSec: m.TokensPerSec, TTFTNoise: m.TTFTNoise, DecodeNoise: m.DecodeNoise, Repetitions: m.Repetitions, Baselines: baselines(s.Subject.Name)}
	if first := s.firstMeasured(); first.Plan != m.Plan && first.Predicted == m.Predicted && first.Positions == m.Positions {
		first.Estimate = nil
		r.First = &first
	}
	if est := m.Estimate; est != nil {
		r.Rho, r.Prefill, r.Decode = est.Rho, programTimes(est.Prefill), programTimes(est.Decode)
		r.HostShare, r.HostDecode = 1-est.Prefill.Array/est.Prefill.Time, 1-est.Decode.Array/est.Decode.Time
	}
	return r, nil
}

func programTimes(p *model.PassEstimate) []ProgramTime {
	var list []ProgramTime
	for _, s := range p.Steps {
		list = append(list, ProgramTime{s.Program, s.On, s.Count, s.Write, s.Run, s.Read, s.Time, s.Roofline})
	}
	return list
}

// baselines are the published figures of a model of that name.
func baselines(name string) []BaselineFigure {
	list := []BaselineFigure{}
	for _, b := range xdna2.Baselines() {
		if row, ok := b.Row(name); ok {
			list = append(list, BaselineFigure{b.Name, b.Machine + "; " + b.Software + "; " + b.Type + "; " + b.Conditions, row})
		}
	}
	return list
}
