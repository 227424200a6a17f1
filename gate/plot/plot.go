// Package plot draws the reports of package gate as PNG pictures. It is a package of its own, so
// that a program that only compares numbers links no fonts and no graphics.
//
//	err := gate.Save("reports", "attention", plot.With(report)) // .txt, .json and .png
package plot

import (
	"encoding/json"
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"github.com/npukit/npukit/gate"
)

// ErrEmpty is wrapped by the error for a report that has nothing finite to draw.
var ErrEmpty = errors.New("nothing finite to draw")

// With returns a report with a method WritePNG for [gate.Save], if this package can draw it, and
// otherwise the report itself. Text and JSON stay the same. It draws
//
//   - a Report as got over want: rounding widens the diagonal, a wrong scale turns it, and a
//     permutation or stale data is a cloud;
//   - a Trace as the mean relative L1 of each tap and of its worst position, with a line at the start
//     of each layer;
//   - a LogitsReport as the KL divergence by position: one that grows points at the KV cache, the mask
//     or RoPE.
//
// The method's error wraps [ErrEmpty] if nothing in the report is finite.
func With(report fmt.Stringer) fmt.Stringer {
	switch report.(type) {
	case gate.Report, gate.Trace, *gate.Trace, gate.LogitsReport:
		return picture{report}
	}
	return report
}

// picture is a report that can be drawn.
type picture struct{ fmt.Stringer }

func (p picture) MarshalJSON() ([]byte, error) { return json.Marshal(p.Stringer) }
func (p picture) WritePNG(w io.Writer) error   { return writePNG(w, p.Stringer) }

// writePNG draws a report. The error wraps [ErrEmpty] if nothing in it is finite.
func writePNG(w io.Writer, report any) error {
	var p *plot.Plot
	var name string
	var err error
	if w == nil {
		return &gate.InputError{Field: "w", Reason: "the writer is nil"}
	}
	switch r := report.(type) {
	case gate.Report:
		name = r.Name
		p, err = scatter(r)
	case gate.Trace:
		name = r.Name
		p, err = trace(r)
	case *gate.Trace:
		if r == nil {
			return &gate.InputError{Field: "report", Reason: "the Trace is nil"}
		}
		return writePNG(w, *r)
	case gate.LogitsReport:
		name = r.Name
		p, err = logits(r)
	default:
		return &gate.InputError{
			Field: "report", Reason: fmt.Sprintf("cannot draw a %T: want a Report, Trace or LogitsReport",
				report),
		}
	}
	if err == nil {
		c := vgimg.New(width, height)
		p.Draw(draw.New(c))
		_, err = vgimg.PngCanvas{Canvas: c}.WriteTo(w)
	}
	if err != nil {
		return fmt.Errorf("plot: %q: %w", name, err)
	}
	return nil
}

// Pictures are 18 by 12 cm at the 96 dpi of vgimg.
const (
	width  = 18 * vg.Centimeter
	height = 12 * vg.Centimeter
)

// Colors of the data, of the reference and of auxiliary lines.
var (
	blue = color.RGBA{R: 0x1f, G: 0x5f, B: 0xa8, A: 0xff}
	red  = color.RGBA{R: 0xc0, G: 0x39, B: 0x2b, A: 0xff}
	gray = color.RGBA{R: 0x99, G: 0x99, B: 0x99, A: 0xff}
)

func scatter(r gate.Report) (*plot.Plot, error) {
	if len(r.Sample.Want) == 0 {
		return nil, ErrEmpty
	}
	p := plot.New()
	p.Title.Text = title(r.Name, r.OK())
	p.X.Label.Text, p.Y.Label.Text = "want", "got"
	points := make(plotter.XYs, len(r.Sample.Want))
	low, high := math.Inf(1), math.Inf(-1)
	for i, want := range r.Sample.Want {
		points[i] = plotter.XY{X: want, Y: r.Sample.Got[i]}
		low, high = min(low, want), max(high, want)
	}
	if low == high { // a single value has no diagonal
		low, high = low-1, high+1
	}
	diagonal, err := plotter.NewLine(plotter.XYs{{X: low, Y: low}, {X: high, Y: high}})
	if err != nil {
		return nil, err
	}
	diagonal.Color = red
	dots, err := plotter.NewScatter(points)
	if err != nil {
		return nil, err
	}
	dots.GlyphStyle = draw.GlyphStyle{Color: blue, Radius: vg.Points(1.2), Shape: draw.CircleGlyph{}}
	p.Add(plotter.NewGrid(), diagonal, dots)
	return p, nil
}

func trace(t gate.Trace) (*plot.Plot, error) {
	if len(t.Taps) == 0 {
		return nil, ErrEmpty
	}
	p := plot.New()
	p.Title.Text = t.Name
	p.X.Label.Text = "tap in order of execution; vertical lines mark layers"
	p.Y.Label.Text = "mean relative L1"
	mean, worst := make([]float64, len(t.Taps)), make([]float64, len(t.Taps))
	for i, tap := range t.Taps {
		mean[i], worst[i] = tap.Metrics.MeanRelL1, tap.Metrics.MaxRowL1
	}
	low, high, err := addLines(p, []string{"all positions", "worst position"}, mean, worst)
	if err != nil {
		return nil, err
	}
	for i, tap := range t.Taps {
		if tap.Layer < 0 || i > 0 && t.Taps[i-1].Layer == tap.Layer {
			continue
		}
		l, err := plotter.NewLine(plotter.XYs{{X: float64(i), Y: low}, {X: float64(i), Y: high}})
		if err != nil {
			return nil, err
		}
		l.Width, l.Color = vg.Points(0.3), gray
		p.Add(l)
	}
	return p, nil
}

func logits(r gate.LogitsReport) (*plot.Plot, error) {
	if len(r.KL) == 0 {
		return nil, ErrEmpty
	}
	p := plot.New()
	p.Title.Text = title(r.Name, r.OK())
	p.X.Label.Text, p.Y.Label.Text = "position", "KL(reference || device), nats"
	_, _, err := addLines(p, []string{"KL"}, r.KL)
	return p, err
}

func title(name string, ok bool) string {
	if ok {
		return name + ": pass"
	}
	return name + ": fail"
}

// addLines draws values by index with a logarithmic y axis of whole decades and returns its range.
// Values that are not finite are left out. Zeros are drawn at the bottom, below everything else.
func addLines(p *plot.Plot, names []string, lines ...[]float64) (low, high float64, err error) {
	finite := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
	low, high = math.Inf(1), 0
	for _, values := range lines {
		for _, v := range values {
			if finite(v) && v > 0 {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	if high == 0 { // only zeros
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
		line.Color = []color.RGBA{blue, red}[n]
		dots.GlyphStyle = draw.GlyphStyle{Color: line.Color, Radius: vg.Points(1.5),
			Shape: draw.CircleGlyph{}}
		p.Add(line, dots)
		if len(lines) > 1 {
			p.Legend.Add(names[n], line, dots)
		}
	}
	if drawn == 0 {
		return low, high, ErrEmpty
	}
	p.Y.Min, p.Y.Max = low, high
	return low, high, nil
}

// decades returns a tick at each power of ten, and labels about ten of them.
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
