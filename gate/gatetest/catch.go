package gatetest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/npu"
)

// caught is the outcome of an adversary at a gate.
type caught struct {
	Adversary Adversary
	Gate      string
	On        string        // the kernel, or "the model"
	Reasons   []gate.Reason // empty if the gate passed it
	Report    *gate.Report  // nil for a gate of a model
}

// metrics returns the metrics that failed, in the report's order; none if the gate passed the
// adversary.
func (c caught) metrics() []string {
	var list []string
	for _, r := range c.Reasons {
		list = append(list, r.Metric)
	}
	return list
}

// err returns nil if the adversary was caught by the expected metric, or is not meant for this
// gate.
func (c caught) err() error {
	metric, meant := c.Adversary.Meant[c.Gate]
	if !meant {
		return nil
	}
	for _, r := range c.Reasons {
		if r.Metric == metric {
			return nil
		}
	}
	outcome := "passes"
	if m := c.metrics(); len(m) > 0 {
		outcome = "fails by " + strings.Join(m, ", ") + " only"
	}
	return fmt.Errorf("gatetest: adversary %q (%s) %s gate %s on %s: want it to fail by %s",
		c.Adversary.Name, c.Adversary.Does, outcome, c.Gate, c.On, metric)
}

// CheckAdversaries proves that [CheckKernel] works on a device: the device passes every probe, and
// fails it by the expected metric when wrapped in the adversary. The error names the adversaries
// that were not caught, or the failure of the device itself.
func CheckAdversaries(ctx context.Context, dev npu.Device, opts *Options) error {
	_, err := catchByKernels(ctx, dev, opts)
	return err
}

// catchByKernels is CheckAdversaries with the outcomes up to the first error of a device.
func catchByKernels(ctx context.Context, dev npu.Device, opts *Options) ([]caught, error) {
	if err := needDevice(dev); err != nil {
		return nil, err
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	find := o.Tolerances
	if find == nil {
		find = Default(dev.Info())
	}
	if o.References == nil {
		o.References = &References{}
	}
	var list []caught
	var errs []error
	honest := map[string]bool{}
	for _, a := range Adversaries() {
		for _, p := range a.Probes {
			o.Segments = p.Segments
			name := fmt.Sprintf("%s%+v %v", p.Op.Kind(), p.Op, p.Segments)
			if !honest[name] {
				honest[name] = true
				r, err := CheckKernel(ctx, dev, p.Op, &o)
				if err == nil {
					err = r.Err()
				}
				if err != nil {
					return list, fmt.Errorf("gatetest: the device fails without an adversary: %w", err)
				}
			}
			r, err := CheckKernel(ctx, a.Wrap(dev, find), p.Op, &o)
			if err != nil {
				return list, fmt.Errorf("gatetest: adversary %q: %w", a.Name, err)
			}
			c := caught{Adversary: a, Gate: gateKernel, On: name, Reasons: r.Reasons, Report: &r}
			list = append(list, c)
			errs = append(errs, c.err())
		}
	}
	return list, errors.Join(errs...)
}
