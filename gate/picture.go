package gate

import (
	"fmt"
	"image/color"
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// Pictures are 18 by 12 cm at the 96 dots an inch of vgimg: large enough to read on a screen, small enough for a report.
const (
	pictureWidth  = 18 * vg.Centimeter
	pictureHeight = 12 * vg.Centimeter
)

// The colours of all pictures: what was found, and what should be.
var (
	found    = color.RGBA{R: 0x1f, G: 0x5f, B: 0xa8, A: 0xff}
	expected = color.RGBA{R: 0xc0, G: 0x39, B: 0x2b, A: 0xff}
	gray     = color.RGBA{R: 0x99, G: 0x99, B: 0x99, A: 0xff}
)

// WritePNG draws got against want: the diagonal is what should be. Noise widens it, a wrong scale turns it, a permutation or stale data makes a
// cloud.
func (r Report) WritePNG(w io.Writer) error {
	if len(r.Sample) == 0 {
		return fmt.Errorf("gate: %s: no pairs to draw: nothing is finite", r.Name)
	}
	p := plot.New()
	p.Title.Text = title(r.Name, r.OK())
	p.X.Label.Text, p.Y.Label.Text = "want", "got"
	points := make(plotter.XYs, len(r.Sample))
	low, high := math.Inf(1), math.Inf(-1)
	for i, s := range r.Sample {
		points[i] = plotter.XY{X: s.Want, Y: s.Got}
		low, high = min(low, s.Want), max(high, s.Want)
	}
	if low == high { // a point has no diagonal
		low, high = low-1, high+1
	}
	diagonal, err := plotter.NewLine(plotter.XYs{{X: low, Y: low}, {X: high, Y: high}})
	if err != nil {
		return fmt.Errorf("gate: %s: %w", r.Name, err)
	}
	diagonal.Color = expected
	scatter, err := plotter.NewScatter(points)
	if err != nil {
		return fmt.Errorf("gate: %s: %w", r.Name, err)
	}
	scatter.GlyphStyle = draw.GlyphStyle{Color: found, Radius: vg.Points(1.2), Shape: draw.CircleGlyph{}}
	p.Add(plotter.NewGrid(), diagonal, scatter)
	return encode(p, w)
}

// WritePNG draws the error along the pass, tap by tap on a logarithmic scale, with a line where each layer begins: the mean relative L1 of
// each tap, and of its worst position.
func (t Trace) WritePNG(w io.Writer) error {
	if len(t.Taps) == 0 {
		return fmt.Errorf("gate: %s: a trace without taps has no picture", t.Name)
	}
	p := plot.New()
	p.Title.Text = t.Name
	p.X.Label.Text, p.Y.Label.Text = "tap, in order of execution; vertical lines begin a layer", "mean relative L1"
	mean, worst := make([]float64, len(t.Taps)), make([]float64, len(t.Taps))
	for i, tap := range t.Taps {
		mean[i], worst[i] = tap.Metrics.MeanRelL1, tap.Metrics.MaxRowL1
	}
	low, high, err := logLines(p, []string{"all positions", "worst position"}, mean, worst)
	if err != nil {
		return fmt.Errorf("gate: %s: %w", t.Name, err)
	}
	for i, tap := range t.Taps {
		if tap.Layer < 0 || i > 0 && t.Taps[i-1].Layer == tap.Layer {
			continue
		}
		l, err := plotter.NewLine(plotter.XYs{{X: float64(i), Y: low}, {X: float64(i), Y: high}})
		if err != nil {
			return fmt.Errorf("gate: %s: %w", t.Name, err)
		}
		l.Width, l.Color = vg.Points(0.3), gray
		p.Add(l)
	}
	return encode(p, w)
}

// WritePNG draws the KL divergence by position on a logarithmic scale. One that grows with the position speaks of the KV cache, the mask or
// RoPE.
func (r LogitsReport) WritePNG(w io.Writer) error {
	if len(r.KL) == 0 {
		return fmt.Errorf("gate: %s: no positions to draw", r.Name)
	}
	p := plot.New()
	p.Title.Text = title(r.Name, r.OK())
	p.X.Label.Text, p.Y.Label.Text = "position", "KL(reference || device), nats"
	if _, _, err := logLines(p, []string{"KL"}, r.KL); err != nil {
		return fmt.Errorf("gate: %s: %w", r.Name, err)
	}
	return encode(p, w)
}

func title(name string, ok bool) string {
	if ok {
		return name + ": pass"
	}
	return name + ": fail"
}

// logLines draws values by index with a logarithmic y axis of whole decades, and gives its range. Values that are not finite are left out,
// and exact zeros, which have no logarithm, lie at the bottom, below everything else.
func logLines(p *plot.Plot, names []string, lines ...[]float64) (low, high float64, err error) {
	finite := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
	low, high = math.Inf(1), 0
	for _, values := range lines {
		for _, v := range values {
			if finite(v) && v > 0 {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	if high == 0 { // nothing but zeros
		low, high = 1e-16, 1e-15
	}
	decade := math.Floor(math.Log10(low)) - 1
	low, high = math.Pow(10, decade), math.Pow(10, max(decade+1, math.Ceil(math.Log10(high))))
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(decades)
	p.Legend.Top, p.Legend.XOffs = true, -vg.Centimeter
	p.Add(plotter.NewGrid())
	drawn := 0
	for n, values := range lines {
		var points plotter.XYs
		for i, v := range values {
			if finite(v) {
				points = append(points, plotter.XY{X: float64(i), Y: max(v, low)})
			}
		}
		if len(points) == 0 {
			continue
		}
		drawn++
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return low, high, err
		}
		line.Color = []color.RGBA{found, expected}[n]
		dots.GlyphStyle = draw.GlyphStyle{Color: line.Color, Radius: vg.Points(1.5), Shape: draw.CircleGlyph{}}
		p.Add(line, dots)
		if len(lines) > 1 {
			p.Legend.Add(names[n], line, dots)
		}
	}
	if drawn == 0 {
		return low, high, fmt.Errorf("nothing is finite, so that there is nothing to draw")
	}
	p.Y.Min, p.Y.Max = low, high
	return low, high, nil
}

// decades puts a tick at each power of ten, and a label at no more than about ten of them.
func decades(low, high float64) []plot.Tick {
	from, to := int(math.Round(math.Log10(low))), int(math.Round(math.Log10(high)))
	every := (to-from)/10 + 1
	var ticks []plot.Tick
	for k := from; k <= to; k++ {
		t := plot.Tick{Value: math.Pow(10, float64(k))}
		if (to-k)%every == 0 {
			t.Label = fmt.Sprintf("1e%d", k)
		}
		ticks = append(ticks, t)
	}
	return ticks
}

func encode(p *plot.Plot, w io.Writer) error {
	c := vgimg.New(pictureWidth, pictureHeight)
	p.Draw(draw.New(c))
	if _, err := (vgimg.PngCanvas{Canvas: c}).WriteTo(w); err != nil {
		return fmt.Errorf("gate: writing a picture: %w", err)
	}
	return nil
}
