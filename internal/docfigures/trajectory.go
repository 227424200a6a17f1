package main

import (
	"context"
	"errors"
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/npukit/npukit/internal/published"
	"github.com/npukit/npukit/skill"
)

// trajectory draws the predicted time to the first token and per token after each change that a
// deployment of Llama-3.2-1B keeps.
func trajectory(ctx context.Context) (*figure, error) {
	m, ok := published.Find("Llama-3.2-1B")
	if !ok {
		return nil, fmt.Errorf("no published model Llama-3.2-1B")
	}
	forecast, err := skill.Foresee(ctx, &m.Config, &skill.Options{SeqLen: 2048})
	if err != nil {
		return nil, err
	}
	var names []string
	var first, token plotter.XYs // y counts down from the first plan
	decode := 0.0
	for i, s := range forecast.Steps {
		if i > 0 && s.Outcome != skill.Kept {
			continue
		}
		y, name := -float64(len(names)), s.Step
		if i == 0 {
			name = "first plan"
		}
		if s.Phase == skill.Decode && decode == 0 {
			decode = y + 0.5
		}
		names = append(names, name)
		first, token = append(first, plotter.XY{X: s.TTFT, Y: y}), append(token, plotter.XY{X: s.Token, Y: y})
	}
	if decode == 0 {
		return nil, errors.New("no change of the decode phase was kept")
	}
	f := newFigure("Llama-3.2-1B, prompt of 2048: predicted times after each change that is kept",
		"predicted time, s", "")
	logarithmic(&f.X)
	const low, high = 0.05, 100
	err = f.line("", plotter.XYs{{X: low, Y: decode}, {X: high, Y: decode}}, gray, true)
	if err != nil {
		return nil, err
	}
	for _, l := range []struct {
		name   string
		points plotter.XYs
		color  color.Color
	}{{"time to the first token", first, blue}, {"time per token", token, red}} {
		if err := f.line(l.name, l.points, l.color, false); err != nil {
			return nil, err
		}
		if err := f.dots("", l.points, l.color); err != nil {
			return nil, err
		}
		for _, p := range []plotter.XY{l.points[0], l.points[len(l.points)-1]} {
			if err := f.text(p.X, p.Y, fmt.Sprintf("%.3g s", p.X), l.color); err != nil {
				return nil, err
			}
		}
	}
	if err := f.text(15, decode, "prefill phase", gray); err != nil {
		return nil, err
	}
	if err := f.text(15, decode-0.6, "decode phase", gray); err != nil {
		return nil, err
	}
	var ticks []plot.Tick
	for i, name := range names {
		ticks = append(ticks, plot.Tick{Value: -float64(i), Label: name})
	}
	f.Y.Tick.Marker = plot.ConstantTicks(ticks)
	f.X.Min, f.X.Max, f.Y.Min, f.Y.Max = low, high, 0.5-float64(len(names)), 0.7
	f.Legend.Top, f.Legend.Left = true, true
	f.Legend.XOffs, f.Legend.YOffs = vg.Centimeter, -2*vg.Centimeter
	f.width = 24 * vg.Centimeter
	return f, nil
}
