// Package estimateplot draws an estimate: programs under the roofline, and the parts of a pass.
package estimateplot

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"github.com/npukit/npukit/internal/output"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu/xdna2"
)

// Colours of the parts of a pass, and of the programs of prefill and decode.
var (
	arrayColor    = color.RGBA{R: 0x1f, G: 0x5f, B: 0xa8, A: 0xff}
	callColor     = color.RGBA{R: 0xc0, G: 0x39, B: 0x2b, A: 0xff}
	transferColor = color.RGBA{R: 0xe6, G: 0x9f, B: 0x00, A: 0xff}
	hostColor     = color.RGBA{R: 0x99, G: 0x99, B: 0x99, A: 0xff}
)

// Draw draws two plots: each program under the roofline, and the parts of a prefill and of a token
// as stacked bars.
func Draw(name string, e *plan.Estimate) ([]byte, error) {
	roof, err := roofline(name, e)
	if err != nil {
		return nil, err
	}
	bars, err := stackedBars(e)
	if err != nil {
		return nil, err
	}
	img := vgimg.New(34*vg.Centimeter, 14*vg.Centimeter)
	dc := vgdraw.New(img)
	roof.Draw(vgdraw.Crop(dc, 0, -13*vg.Centimeter, 0, 0))
	bars.Draw(vgdraw.Crop(dc, 22*vg.Centimeter, -vg.Centimeter/2, 0, 0))
	var b bytes.Buffer
	_, err = vgimg.PngCanvas{Canvas: img}.WriteTo(&b)
	return b.Bytes(), err
}

// roofline draws programs by their operations per byte and the time of their runs and calls, on
// logarithmic axes.
func roofline(name string, e *plan.Estimate) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("%s on XDNA 2, predicted (prompt %d, host %s)", name, e.SeqLen, e.Host)
	p.X.Label.Text, p.Y.Label.Text = "FLOPs for each byte that must move", "GFLOP/s"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	low, high, least := math.Inf(1), 0.0, math.Inf(1)
	for _, pass := range []struct {
		name  string
		color color.Color
		below vg.Length // of labels
		*plan.PassEstimate
	}{{"prefill", arrayColor, vg.Points(1), e.Prefill}, {"decode", callColor, vg.Points(-8), e.Decode}} {
		var points plotter.XYs
		var names []string
		for _, s := range pass.Steps {
			if s.FLOPs == 0 || s.Bytes == 0 {
				continue
			}
			at := plotter.XY{X: s.FLOPs / s.Bytes, Y: s.FLOPs / s.Time / 1e9}
			low, high, least = min(low, at.X), max(high, at.X), min(least, at.Y)
			// Programs of the same sort overlap and share a label.
			i := slices.IndexFunc(points, func(p plotter.XY) bool { return near(p.X, at.X) && near(p.Y, at.Y) })
			if i < 0 {
				points, names = append(points, at), append(names, s.Program)
			} else {
				names[i] += ", " + s.Program
			}
		}
		if len(points) == 0 {
			return nil, ErrNothing
		}
		scatter, err := plotter.NewScatter(points)
		if err != nil {
			return nil, err
		}
		scatter.GlyphStyle = vgdraw.GlyphStyle{Color: pass.color, Radius: vg.Points(3), Shape: vgdraw.CircleGlyph{}}
		labels, err := plotter.NewLabels(plotter.XYLabels{XYs: points, Labels: names})
		if err != nil {
			return nil, err
		}
		labels.Offset = vg.Point{X: vg.Points(5), Y: pass.below} // apart if a program of both passes has two points
		for i := range labels.TextStyle {
			labels.TextStyle[i].Font.Size = vg.Points(8)
		}
		p.Add(scatter, labels)
		p.Legend.Add(pass.name, scatter)
	}
	memory, peak := xdna2.PeakBandwidth(), xdna2.PeakFLOPS(xdna2.GEMM)
	low, high = low/4, max(high*16, 4*peak/memory)
	roof, err := plotter.NewLine(plotter.XYs{{X: low, Y: low * memory}, {X: peak / memory, Y: peak},
		{X: high, Y: peak}})
	if err != nil {
		return nil, err
	}
	p.Add(plotter.NewGrid(), roof)
	p.Legend.Add(fmt.Sprintf("%.0f GB/s, %.0f GFLOP/s", memory, peak), roof)
	p.Legend.Left, p.Legend.Top = true, true
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = low, high, min(least, low*memory)/2, 4*peak
	return p, nil
}

// near reports whether two values of a logarithmic axis would overlap.
func near(a, b float64) bool { return math.Abs(math.Log10(a/b)) < 0.1 }

// stackedBars draws the parts of the time of a prefill and of a token, in percent.
func stackedBars(e *plan.Estimate) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("first token %s, then %s tokens/s", output.Time(e.TTFT), output.Digits(e.TokensPerSec))
	p.Y.Label.Text = "% of the time"
	p.Y.Min, p.Y.Max = 0, 100
	passes := []*plan.PassEstimate{e.Prefill, e.Decode}
	var below *plotter.BarChart
	for _, part := range []struct {
		name  string
		color color.Color
		of    func(*plan.PassEstimate) float64
	}{
		{"programs on the array", arrayColor, func(p *plan.PassEstimate) float64 { return p.Array }},
		{"calls", callColor, func(p *plan.PassEstimate) float64 { return p.Calls }},
		{"transfers", transferColor, func(p *plan.PassEstimate) float64 { return p.Transfers }},
		{"host", hostColor, func(p *plan.PassEstimate) float64 { return p.HostWork }},
	} {
		var values plotter.Values
		for _, pass := range passes {
			values = append(values, 100*part.of(pass)/pass.Time)
		}
		bars, err := plotter.NewBarChart(values, 2*vg.Centimeter)
		if err != nil {
			return nil, err
		}
		bars.Color, bars.LineStyle.Width = part.color, 0
		if below != nil {
			bars.StackOn(below)
		}
		below = bars
		p.Add(bars)
		p.Legend.Add(part.name, bars)
	}
	p.Legend.Top = true
	p.NominalX("prefill", "one token")
	p.X.Min, p.X.Max = -0.6, 3.2 // room for the legend
	return p, nil
}

var ErrNothing = errors.New("the estimate has no programs on the array")
