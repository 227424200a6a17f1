package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// figure is a plot and its size.
type figure struct {
	*plot.Plot
	width, height vg.Length
}

// Colors of data and of auxiliary lines.
var (
	blue   = color.RGBA{R: 0x1f, G: 0x5f, B: 0xa8, A: 0xff}
	red    = color.RGBA{R: 0xc0, G: 0x39, B: 0x2b, A: 0xff}
	green  = color.RGBA{R: 0x2e, G: 0x8b, B: 0x57, A: 0xff}
	orange = color.RGBA{R: 0xd6, G: 0x8a, B: 0x10, A: 0xff}
	gray   = color.RGBA{R: 0x77, G: 0x77, B: 0x77, A: 0xff}
)

// newFigure returns an empty figure with a grid.
func newFigure(title, x, y string) *figure {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.Padding = vg.Points(6)
	p.Add(plotter.NewGrid())
	return &figure{p, 20 * vg.Centimeter, 12 * vg.Centimeter}
}

// decades are ticks at the powers of ten of a logarithmic axis.
var decades = plot.TickerFunc(func(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for k := math.Floor(math.Log10(low)); k <= math.Ceil(math.Log10(high)); k++ {
		t := plot.Tick{Value: math.Pow(10, k), Label: fmt.Sprintf("1e%.0f", k)}
		if k >= -2 && k <= 4 {
			t.Label = fmt.Sprintf("%g", math.Pow10(int(k)))
		}
		if t.Value >= low*0.999 && t.Value <= high*1.001 {
			ticks = append(ticks, t)
		}
	}
	return ticks
})

// logarithmic makes an axis logarithmic.
func logarithmic(a *plot.Axis) { a.Scale, a.Tick.Marker = plot.LogScale{}, decades }

// line adds a line, dashed if dashes is true, and its legend unless name is empty.
func (f *figure) line(name string, points plotter.XYs, c color.Color, dashes bool) error {
	l, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	l.Color, l.Width = c, vg.Points(1.2)
	if dashes {
		l.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
	}
	f.Add(l)
	if name != "" {
		f.Legend.Add(name, l)
	}
	return nil
}

// dots adds points and their legend unless name is empty.
func (f *figure) dots(name string, points plotter.XYs, c color.Color) error {
	s, err := plotter.NewScatter(points)
	if err != nil {
		return err
	}
	s.GlyphStyle = draw.GlyphStyle{Color: c, Radius: vg.Points(2.2), Shape: draw.CircleGlyph{}}
	f.Add(s)
	if name != "" {
		f.Legend.Add(name, s)
	}
	return nil
}

// text writes a label to the right of and above a point.
func (f *figure) text(x, y float64, s string, c color.Color) error {
	l, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: x, Y: y}}, Labels: []string{s}})
	if err != nil {
		return err
	}
	l.TextStyle[0].Color = c
	l.Offset = vg.Point{X: vg.Points(4), Y: vg.Points(4)}
	f.Add(l)
	return nil
}

// save writes the figure as a PNG.
func (f *figure) save(path string) error {
	c := vgimg.New(f.width, f.height)
	const margin = 0.3 * vg.Centimeter
	f.Draw(draw.Crop(draw.New(c), margin, -margin, margin, -margin))
	var b bytes.Buffer
	if _, err := (vgimg.PngCanvas{Canvas: c}).WriteTo(&b); err != nil {
		return err
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		return err
	}
	fmt.Println(path)
	return nil
}
