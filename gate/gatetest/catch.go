package gatetest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/npu"
)

// Caught is what a gate made of an adversary.
type Caught struct {
	Adversary Adversary     `json:"adversary"`
	Gate      string        `json:"gate"`
	On        string        `json:"on"`               // the kernel, or "the model"
	Reasons   []gate.Reason `json:"reasons"`          // empty if the gate passed it
	Report    *gate.Report  `json:"report,omitempty"` // nil for a gate of a model
}

// Metrics are the names of what failed, in the report's order; none when the gate passed the adversary.
func (c Caught) Metrics() []string {
	var list []string
	for _, r := range c.Reasons {
		list = append(list, r.Metric)
	}
	return list
}

// Err is nil when the adversary was caught as it was meant to be, by the metric that is meant to, or was not meant for this gate.
func (c Caught) Err() error {
	metric, meant := c.Adversary.Meant[c.Gate]
	if !meant {
		return nil
	}
	for _, r := range c.Reasons {
		if r.Metric == metric {
			return nil
		}
	}
	what := "passes"
	if m := c.Metrics(); len(m) > 0 {
		what = "fails by " + strings.Join(m, ", ") + " only"
	}
	return fmt.Errorf("gatetest: adversary %q (%s) %s gate %s on %s: want it caught by %s", c.Adversary.Name, c.Adversary.Does, what, c.Gate, c.On, metric)
}

// CheckAdversaries proves that [CheckKernel] catches what it is meant to on a device: the device passes every probe as it is, and fails it with the metric that
// is meant to find it when it is wrapped in the adversary. The error says which did not, and what is wrong with the device itself first of all; the list has
// what came out in any case.
func CheckAdversaries(ctx context.Context, dev npu.Device, opts *Options) ([]Caught, error) {
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
	var list []Caught
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
					return list, fmt.Errorf("gatetest: the device itself does not pass, so that nothing follows from what else does not: %w", err)
				}
			}
			r, err := CheckKernel(ctx, a.Wrap(dev, find), p.Op, &o)
			if err != nil {
				return list, fmt.Errorf("gatetest: adversary %q: %w", a.Name, err)
			}
			c := Caught{Adversary: a, Gate: GateKernel, On: name, Reasons: r.Reasons, Report: &r}
			list = append(list, c)
			errs = append(errs, c.Err())
		}
	}
	return list, errors.Join(errs...)
}
