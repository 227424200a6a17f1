package main

import (
	"context"
	"errors"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/internal/localmodel"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/sim"
	"github.com/npukit/npukit/oracle"
)

// prompt is the text whose positions are compared.
const prompt = "The lighthouse keeper climbed the stairs every evening, lit the lamp and wrote the " +
	"weather into a book. When the fog came in from the west, he sounded the horn until dawn."

// layers draws the error of the residual stream after each layer of the demo model, in three number
// formats.
func layers(ctx context.Context) (*figure, error) {
	f := newFigure("SmolLM2-135M-Instruct: error of the residual stream by layer", "layer",
		"mean relative L1 against the oracle")
	logarithmic(&f.Y)
	for _, d := range []struct {
		name  string
		open  func() (npu.Device, error)
		plan  *plan.Options
		color color.Color
	}{
		{"virtual XDNA 2: block floating point", func() (npu.Device, error) { return sim.Open(nil) }, nil, red},
		{"cpu: BF16 operands and KV cache", func() (npu.Device, error) { return cpu.Open(nil) }, nil, blue},
		{"cpu: FP32 operands and KV cache", func() (npu.Device, error) { return cpu.Open(nil) },
			&plan.Options{Activations: dtype.F32, Cache: dtype.F32}, green},
	} {
		points, err := drift(ctx, d.open, d.plan)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.name, err)
		}
		if err := f.line(d.name, points, d.color, false); err != nil {
			return nil, err
		}
		if err := f.dots("", points, d.color); err != nil {
			return nil, err
		}
	}
	f.X.Tick.Marker = plot.TickerFunc(func(_, high float64) []plot.Tick {
		var ticks []plot.Tick
		for layer := 0.0; layer <= high; layer += 5 {
			ticks = append(ticks, plot.Tick{Value: layer, Label: fmt.Sprint(layer)})
		}
		return ticks
	})
	f.Y.Min, f.Y.Max = 1e-7, 10
	f.Legend.Top, f.Legend.Left, f.Legend.XOffs = true, true, vg.Centimeter
	return f, nil
}

// drift returns the error of the residual stream after each layer.
func drift(ctx context.Context, open func() (npu.Device, error), opts *plan.Options) (_ plotter.XYs, err error) {
	path, err := demoModel()
	if err != nil {
		return nil, err
	}
	dev, err := open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	rec := &gate.Recording{}
	tap := func(name string, shape []int, values []float32) error {
		if !residual(name) {
			return nil
		}
		return rec.Tap(name, shape, values)
	}
	m, err := model.Open(ctx, dev, path, &model.OpenOptions{Tap: tap, MaxContext: 128, PlanOptions: opts})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	ids, err := m.Tokens(model.Text(prompt))
	if err != nil {
		return nil, err
	}
	s := m.NewSession()
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Score(ctx, ids, func(int, []float32) error { return nil }); err != nil {
		return nil, err
	}
	ref, err := oracle.Open(m.Checkpoint())
	if err != nil {
		return nil, err
	}
	trace, err := rec.Trace(func(tap gate.TapFunc) error {
		return ref.Forward(ctx, ref.NewState(), ids, &oracle.ForwardOptions{Tap: tap}, nil)
	})
	if err != nil {
		return nil, err
	}
	var points plotter.XYs
	for _, t := range trace.Taps {
		points = append(points, plotter.XY{X: float64(t.Layer), Y: t.Metrics.MeanRelL1})
	}
	if len(points) == 0 {
		return nil, errors.New("the device shows no residual stream")
	}
	return points, nil
}

// residual reports whether a tap is the residual stream at the end of a layer.
func residual(name string) bool { return strings.HasSuffix(name, ".ffn.residual") }

// demoModel returns the path of the model that `make demo` fetches.
func demoModel() (string, error) {
	dir, err := localmodel.CacheFolder()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "SmolLM2-135M-Instruct-Q4_1.gguf")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("the demo model is missing, run `make demo`: %w", err)
	}
	return path, nil
}
