package main

import (
	"bytes"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"github.com/npukit/npukit/internal/validation"
)

var (
	blue = color.RGBA{R: 0x1f, G: 0x5f, B: 0xa8, A: 0xff}
	red  = color.RGBA{R: 0xc0, G: 0x39, B: 0x2b, A: 0xff}
	gray = color.RGBA{R: 0x99, G: 0x99, B: 0x99, A: 0xff}
)

// drawModels draws predicted against published times of prefill and decode on logarithmic axes. The
// diagonal is a perfect prediction, the dashed lines are 15 % off.
func drawModels(wholes []validation.Whole, apriori, held []validation.Prediction) ([]byte, error) {
	img := vgimg.New(30*vg.Centimeter, 14*vg.Centimeter)
	dc := draw.New(img)
	for i, half := range []struct {
		title     string
		published func(validation.Whole) float64
		predicted func(validation.Prediction) float64
	}{
		{
			"time to the first token, prompt of 2048, s",
			func(w validation.Whole) float64 { return w.TTFT },
			func(p validation.Prediction) float64 { return p.TTFT },
		},
		{
			"time per token, ms",
			func(w validation.Whole) float64 { return 1e3 / w.TokensPerSec },
			func(p validation.Prediction) float64 { return 1e3 / p.TokensPerSec },
		},
	} {
		p := plot.New()
		p.Title.Text = half.title
		p.X.Label.Text, p.Y.Label.Text = "published", "predicted"
		p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
		p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
		low, high := math.Inf(1), 0.0
		var a, h plotter.XYs
		var names []string
		for j, w := range wholes {
			x := half.published(w)
			low, high = min(low, x), max(high, x)
			a = append(a, plotter.XY{X: x, Y: half.predicted(apriori[j])})
			h = append(h, plotter.XY{X: x, Y: half.predicted(held[j])})
			names = append(names, w.Name)
		}
		low, high = low/1.5, high*2
		for _, off := range []float64{0.85, 1, 1.15} {
			l, err := plotter.NewLine(plotter.XYs{{X: low, Y: low * off}, {X: high, Y: high * off}})
			if err != nil {
				return nil, err
			}
			l.Color = gray
			if off != 1 {
				l.Dashes = []vg.Length{vg.Points(3), vg.Points(3)}
			}
			p.Add(l)
		}
		for _, s := range []struct {
			name  string
			at    plotter.XYs
			color color.Color
		}{{"a priori", a, red}, {"left out of the fit", h, blue}} {
			scatter, err := plotter.NewScatter(s.at)
			if err != nil {
				return nil, err
			}
			scatter.GlyphStyle = draw.GlyphStyle{Color: s.color, Radius: vg.Points(3), Shape: draw.CircleGlyph{}}
			p.Add(scatter)
			p.Legend.Add(s.name, scatter)
		}
		labels, err := plotter.NewLabels(plotter.XYLabels{XYs: h, Labels: names})
		if err != nil {
			return nil, err
		}
		labels.Offset = vg.Point{X: vg.Points(6), Y: vg.Points(-8)}
		p.Add(labels)
		p.Legend.Left, p.Legend.Top = true, true
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = low, high, low, high
		left, right := vg.Length(0), -15*vg.Centimeter
		if i == 1 {
			left, right = 15*vg.Centimeter, 0
		}
		p.Draw(draw.Crop(dc, left, right, 0, 0))
	}
	var b bytes.Buffer
	_, err := vgimg.PngCanvas{Canvas: img}.WriteTo(&b)
	return b.Bytes(), err
}
