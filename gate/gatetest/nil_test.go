package gatetest_test

import (
	"context"
	"errors"
	"regexp"
	"testing"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/gate/gatetest"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// Nil options mean the defaults.
func TestNilMeansTheDefaults(t *testing.T) {
	dev, add := open(t, "go"), op.Add{Rows: 4, Width: 8}
	want, ok := gatetest.Default(dev.Info())(add, 0)
	if ok {
		t.Fatalf("a tolerance for no type: %+v", want)
	}
	r := gatetest.Kernel(t, dev, add, nil)
	if same := gatetest.Kernel(t, dev, add, &gatetest.Options{}); r.Tolerance != same.Tolerance ||
		r.Tolerance.Note == "" {
		t.Errorf("nil options mean %+v, zero options %+v", r.Tolerance, same.Tolerance)
	}
	if _, err := gatetest.TimeKernel(t.Context(), dev, add, nil, 1); err != nil {
		t.Error(err)
	}
	zeros := gatetest.Adversaries()[0]
	if r, err := gatetest.CheckKernel(t.Context(), zeros.Wrap(dev, nil), add, nil); err != nil ||
		r.OK() {
		t.Errorf("an adversary wrapped with nil tolerances: %v, OK %v", err, r.OK())
	}
}

// Nil where there is no default, and options that select nothing, are InputErrors.
func TestNilAndBadOptions(t *testing.T) {
	ctx, dev, add := context.Background(), open(t, "go"), op.Add{Rows: 4, Width: 8}
	conform := func(dev npu.Device, o *gatetest.ConformanceOptions) error {
		_, err := gatetest.CheckConformance(ctx, dev, o)
		return err
	}
	load := func(d npu.Device) error {
		_, err := gatetest.CheckKernel(ctx, d, add, nil)
		return err
	}
	for name, call := range map[string]func() error{
		"CheckKernel, device": func() error { return load(nil) },
		"CheckKernel, op": func() error {
			_, err := gatetest.CheckKernel(ctx, dev, nil, nil)
			return err
		},
		"TimeKernel, device": func() error {
			_, err := gatetest.TimeKernel(ctx, nil, add, nil, 1)
			return err
		},
		"TimeKernel, op": func() error {
			_, err := gatetest.TimeKernel(ctx, dev, nil, nil, 1)
			return err
		},
		"TimeKernel, runs": func() error {
			_, err := gatetest.TimeKernel(ctx, dev, add, nil, 0)
			return err
		},
		"CheckAdversaries": func() error { return gatetest.CheckAdversaries(ctx, nil, nil) },
		"CheckModel, device": func() error {
			_, err := gatetest.CheckModel(ctx, nil, gatetest.Model{})
			return err
		},
		"CheckModel, model": func() error {
			_, err := gatetest.CheckModel(ctx, dev, gatetest.Model{})
			return err
		},
		"CheckModelAdversaries": func() error {
			return gatetest.CheckModelAdversaries(ctx, nil, gatetest.Model{})
		},
		"Wrap, device": func() error {
			return load(gatetest.Adversaries()[0].Wrap(nil,
				nil))
		},
		"Wrap, the zero Adversary": func() error { return load(gatetest.Adversary{}.Wrap(dev, nil)) },
		"CheckConformance, device": func() error { return conform(nil, nil) },
		"CheckConformance, Ops": func() error {
			return conform(dev,
				&gatetest.ConformanceOptions{Ops: []string{"Matmul"}})
		},
		"CheckConformance, Cases": func() error {
			return conform(dev, &gatetest.ConformanceOptions{MayRefuse: []gatetest.Refusal{{Why: "all"}}})
		},
		"CheckConformance, Why": func() error {
			may := []gatetest.Refusal{{Cases: regexp.MustCompile("Q4")}}
			return conform(dev, &gatetest.ConformanceOptions{MayRefuse: may})
		},
	} {
		var bad *gate.InputError
		if err := call(); !errors.As(err, &bad) {
			t.Errorf("%s: error %v, want an InputError", name, err)
		}
	}
}
