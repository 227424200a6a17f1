package main

import (
	"context"
	"errors"
	"fmt"
	"image/color"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/npu/xdna2"
)

// roofline draws the roofs of the array and every published kernel that runs alone: FLOP per byte of
// DRAM traffic, if each operand moves once, against the published rate.
func roofline(context.Context) (*figure, error) {
	f := newFigure("XDNA 2: published kernels under the roofline",
		"arithmetic intensity, FLOP per byte of DRAM traffic", "GFLOP/s")
	logarithmic(&f.X)
	logarithmic(&f.Y)
	const lowX, highX, lowY, highY = 0.05, 8000, 0.01, 2e5
	memory := xdna2.PeakBandwidth()
	for _, roof := range []struct {
		kernel xdna2.Kernel
		name   string
		color  color.Color
	}{{xdna2.GEMM, "matrix unit, BFP16", gray}, {xdna2.GEMV, "vector multiply-add, BF16", gray}} {
		peak := xdna2.PeakFLOPS(roof.kernel)
		ridge := peak / memory
		if err := f.line("", plotter.XYs{{X: ridge, Y: peak}, {X: highX, Y: peak}}, roof.color, false); err != nil {
			return nil, err
		}
		if err := f.text(lowX*1.2, peak, fmt.Sprintf("%s: %.1f TFLOP/s", roof.name, peak/1e3), roof.color); err != nil {
			return nil, err
		}
		if err := f.line("", plotter.XYs{{X: lowX, Y: peak}, {X: ridge, Y: peak}}, roof.color, true); err != nil {
			return nil, err
		}
	}
	ridge := xdna2.PeakFLOPS(xdna2.GEMM) / memory
	err := f.line("", plotter.XYs{{X: lowX, Y: lowX * memory}, {X: ridge, Y: ridge * memory}}, gray, false)
	if err != nil {
		return nil, err
	}
	if err := f.text(4, 100, fmt.Sprintf("DRAM, %.1f GB/s", memory), gray); err != nil {
		return nil, err
	}
	points := map[string]plotter.XYs{}
	clock := xdna2.NewClock(xdna2.HostNpukit())
	for _, r := range xdna2.PublishedRegistry().Rows() {
		o := r.Op()
		if o == nil || r.Kernel == xdna2.LayerNorm || !r.Standalone() || r.Program != "" || r.Latency <= 0 {
			continue
		}
		types := []dtype.Type{dtype.BF16, dtype.BF16, r.Out}
		if r.Kernel != xdna2.GEMM {
			types = nil
		}
		c, err := clock.Launch(o, types, r.Mapping, op.Size{})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.ID, err)
		}
		name := groupOf(r.Kernel)
		points[name] = append(points[name], plotter.XY{X: c.FLOPs / c.Bytes, Y: c.FLOPs / (r.Latency * 1e3)})
	}
	n := 0
	for _, g := range []struct {
		name  string
		color color.Color
	}{{"GEMM", blue}, {"attention", green}, {"element-wise, norms, RoPE", orange}, {"GEMV", red}} {
		n += len(points[g.name])
		if err := f.dots(fmt.Sprintf("%s (%d)", g.name, len(points[g.name])), points[g.name], g.color); err != nil {
			return nil, err
		}
	}
	if n == 0 {
		return nil, errors.New("the registry has no timed rows")
	}
	for _, xy := range points {
		for _, p := range xy {
			if !(p.X >= lowX && p.X <= highX && p.Y >= lowY && p.Y <= highY) {
				return nil, fmt.Errorf("the point (%g, %g) is outside of the axes", p.X, p.Y)
			}
		}
	}
	f.X.Min, f.X.Max, f.Y.Min, f.Y.Max = lowX, highX, lowY, highY
	f.Legend.XOffs, f.Legend.YOffs = -vg.Centimeter, vg.Centimeter
	return f, nil
}

func groupOf(k xdna2.Kernel) string {
	switch k {
	case xdna2.GEMM:
		return "GEMM"
	case xdna2.GEMV:
		return "GEMV"
	case xdna2.Attention:
		return "attention"
	}
	return "element-wise, norms, RoPE"
}
