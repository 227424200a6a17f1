package report

import (
	"bytes"
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"github.com/npukit/npukit/internal/markdown"
	"github.com/npukit/npukit/internal/published"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/timing"
)

// trajectoryPoint is an attempt that was measured.
type trajectoryPoint struct {
	name  string
	phase journal.Phase
	kept  bool
	at    journal.Measurement
}

// trajectory returns the first plan and all attempts that were measured, in order.
func trajectory(s *journal.State) []trajectoryPoint {
	first, ok := s.FirstMeasured()
	if !ok {
		return nil
	}
	list := []trajectoryPoint{{"first plan", s.Measured[0].Phase, true, first}}
	for _, a := range s.Attempts {
		if a.Value.After != nil {
			list = append(list, trajectoryPoint{a.Value.Step, a.Phase, a.Value.Outcome == journal.Kept, *a.Value.After})
		}
	}
	return list
}

// Trajectory returns perf_opt_traj.md: every attempt, and published figures.
func Trajectory(s *journal.State) []byte {
	p := &markdown.Page{}
	p.Linef("# Trajectory: %s on %s\n", s.Subject.Name, s.Subject.Device)
	points := trajectory(s)
	if len(points) == 0 {
		p.Linef("Nothing has been measured yet.")
		return p.Bytes()
	}
	how := "Times are measured on " + points[0].at.Device + "."
	if points[0].at.Predicted {
		how = "Times are predicted by the clock of the virtual array (host profile " + points[0].at.Clock +
			"), and not measured."
	}
	p.Linef("%s Prompt of %d tokens. A change is kept when the gates pass and it is faster beyond noise, each on "+
		"top of those kept before.\n", how, points[0].at.Positions)
	if !points[0].at.Predicted {
		p.Linef("%s Times of different attempts were taken at different times, and are not to be compared; those "+
			"of the first plan and of the one that is reported are, once phase 6 has "+
			"timed the two in turns.\n", TurnsMarkdown(journal.LeastSpread))
	}
	p.Linef("| phase | change | outcome | first token | a token | why |\n|---|---|---|--:|--:|---|")
	p.Linef("| - | first plan | - | %s | %s | |", journal.Seconds(points[0].at.TTFT),
		journal.Seconds(1/points[0].at.TokensPerSec))
	for _, a := range s.Attempts {
		first, token := "-", "-"
		if m := a.Value.After; m != nil {
			first, token = journal.Seconds(m.TTFT), journal.Seconds(1/m.TokensPerSec)
		}
		p.Linef("| %s | %s | %s | %s | %s | %s |", a.Phase, markdown.Cell(a.Value.Step), a.Value.Outcome, first, token,
			markdown.Cell(a.Value.Why))
	}
	if len(points) > 1 {
		p.Linef("\n![trajectory](perf_opt_traj.png)")
	}
	p.Linef("\n## Published figures, each under its own conditions\n\n| source | model | first token | tokens/s | " +
		"conditions |\n|---|---|--:|--:|---|")
	for _, b := range published.Baselines() {
		for _, row := range b.Rows {
			first, tokens := "-", "-"
			if row.TTFT > 0 {
				first = journal.Seconds(row.TTFT)
			}
			if row.TokensPerSec > 0 {
				tokens = fmt.Sprintf("%.3g", row.TokensPerSec)
			}
			p.Linef("| %s | %s | %s | %s | %s |", b.Name, row.Model, first, tokens,
				markdown.Cell(b.Machine+"; "+b.Conditions))
		}
	}
	return p.Bytes()
}

// drawTrajectory plots the time to the first token and the time of a token over the attempts.
func drawTrajectory(s *journal.State, points []trajectoryPoint) ([]byte, error) {
	blue, grey := color.RGBA{0x1f, 0x5f, 0xa8, 0xff}, color.RGBA{0x99, 0x99, 0x99, 0xff}
	plots := []*plot.Plot{}
	for _, metric := range []struct {
		title string
		value func(journal.Measurement) float64
	}{
		{"time to the first token, s", func(m journal.Measurement) float64 { return m.TTFT }},
		{"time of a token, s", func(m journal.Measurement) float64 { return 1 / m.TokensPerSec }},
	} {
		pl := plot.New()
		pl.Y.Label.Text = metric.title
		pl.Y.Min = 0
		var kept, rejected plotter.XYs
		names := make([]string, len(points))
		for i, pt := range points {
			v := metric.value(pt.at)
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return nil, fmt.Errorf("skill: trajectory: %s has no %s", pt.name, metric.title)
			}
			xy := plotter.XY{X: float64(i), Y: v}
			names[i] = pt.name
			if pt.kept {
				kept = append(kept, xy)
			} else {
				rejected = append(rejected, xy)
			}
		}
		line, dots, err := plotter.NewLinePoints(kept)
		if err != nil {
			return nil, fmt.Errorf("skill: trajectory: %w", err)
		}
		line.Color, dots.Color, dots.Shape = blue, blue, draw.CircleGlyph{}
		pl.Add(plotter.NewGrid(), line, dots)
		pl.Legend.Add("kept", line, dots)
		if len(rejected) > 0 {
			cross, err := plotter.NewScatter(rejected)
			if err != nil {
				return nil, fmt.Errorf("skill: trajectory: %w", err)
			}
			cross.Color, cross.Shape = grey, draw.CrossGlyph{}
			pl.Add(cross)
			pl.Legend.Add("rejected", cross)
		}
		pl.Legend.Top = true
		pl.NominalX(names...)
		pl.X.Tick.Label.Rotation = math.Pi / 6
		pl.X.Tick.Label.XAlign = draw.XRight
		plots = append(plots, pl)
	}
	how := "measured"
	if points[0].at.Predicted {
		how = "predicted, not measured"
	}
	plots[0].Title.Text = fmt.Sprintf("%s on %s: %s, prompt of %d tokens", s.Subject.Name, s.Subject.Device, how,
		points[0].at.Positions)
	canvas := vgimg.New(9*vg.Inch, 9*vg.Inch)
	whole := draw.New(canvas)
	half := whole.Size().Y / 2
	plots[0].Draw(draw.Crop(whole, 0, 0, half, 0))
	plots[1].Draw(draw.Crop(whole, 0, 0, 0, -half))
	var b bytes.Buffer
	if _, err := (vgimg.PngCanvas{Canvas: canvas}).WriteTo(&b); err != nil {
		return nil, fmt.Errorf("skill: trajectory: %w", err)
	}
	return b.Bytes(), nil
}

// TurnsMarkdown describes how changes are measured.
func TurnsMarkdown(spread float64) string {
	return fmt.Sprintf(`Where times are measured, the plan before a change and the plan with it are timed in turns:
before, after, before, after, and so on to a last before. Each repetition of the changed plan is compared
with the two around it, so that load and clock drift affect both plans alike. A change is kept if the
median of the turns is faster by more than %.2g %%, and if nearly all turns are faster: a coin would
fall so often on one side in at most one of 30 trials (8 of 9, %d of %d). There are %d turns, and up
to %d times as many if other processes are busy. The times shown are those of the median turn.`,
		100*spread, timing.MostOf(27), 27, 2*timing.DefaultRepetitions-1, timing.DisturbedTimes)
}
