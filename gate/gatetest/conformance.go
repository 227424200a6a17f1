package gatetest

import (
	"context"
	"errors"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// ConformanceOptions selects the cases of a suite and how they are judged. The zero value and nil
// mean the defaults.
type ConformanceOptions struct {
	Full       bool                    // adds the models' whole shapes, which takes much longer
	Ops        []string                // kinds of op, such as "MatMul"; empty means all
	Only       func(Case) bool         // nil means all cases
	Tolerances Tolerances              // nil means those of [Default]
	References *References             // shared between devices; nil keeps nothing
	Mapping    func(op.Op) npu.Mapping // for devices that read it; nil means none
	MayRefuse  []Refusal               // cases that the device need not support
}

// Refusal allows a device to refuse cases.
type Refusal struct {
	Cases *regexp.Regexp // matches their names; must not be nil
	Why   string         // for people; must not be empty
}

// CaseResult is the outcome of a case. If Refused and Err are nil, the report has the verdict.
type CaseResult struct {
	Case
	Report  gate.Report
	Refused *RefusedError // the device did not load it
	Allowed string        // the Why of the Refusal that allows that; "" if none does
	Err     error         // the device or the suite failed
}

// ok reports whether the result is right, or the refusal is allowed.
func (r *CaseResult) ok() bool {
	if r.Refused != nil {
		return r.Allowed != ""
	}
	return r.Err == nil && r.Report.OK()
}

// Conformance runs the whole suite on a device and fails the test if any case is wrong. One line
// tests a new device:
//
//	gatetest.Conformance(t, dev, nil)
//
// It prints the summary: wrong results first, then refusals by op with their reason.
func Conformance(t testing.TB, dev npu.Device, opts *ConformanceOptions) Summary {
	t.Helper()
	s, err := CheckConformance(t.Context(), dev, opts)
	if err != nil {
		t.Fatal(err)
	}
	if s.Err() == nil {
		t.Log(s)
	} else {
		t.Error(s)
	}
	return s
}

// CheckConformance runs the suite on a device, several cases at a time. Failures of the
// device are in the summary. The error is a [gate.InputError], or that of a context that has ended.
//
// A case that the device does not load counts as refused, with the device's reason, and is a
// failure unless the options allow it: a device that refuses everything does not pass. A device
// without AnyRows in its [npu.Info] gets programs of fixed shape only, and no runs of several
// sessions.
func CheckConformance(
	ctx context.Context, dev npu.Device, opts *ConformanceOptions,
) (Summary, error) {
	var o ConformanceOptions
	if opts != nil {
		o = *opts
	}
	if err := needDevice(dev); err != nil {
		return Summary{}, err
	}
	all := cases(o.Full)
	if err := o.check(all); err != nil {
		return Summary{}, err
	}
	info := dev.Info()
	s := Summary{Device: info.Name}
	for _, c := range all {
		switch {
		case len(o.Ops) > 0 && !slices.Contains(o.Ops, c.Op.Kind()):
		case o.Only != nil && !o.Only(c):
		case !info.AnyRows && len(c.Segments) > 1:
			s.LeftOut++
		default:
			s.Results = append(s.Results, CaseResult{Case: c})
		}
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(len(s.Results), runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(s.Results) {
					return
				}
				s.Results[i].run(ctx, dev, info, &o)
			}
		})
	}
	wg.Wait()
	return s, ctx.Err()
}

// check refuses options that select nothing or cannot be applied.
func (o *ConformanceOptions) check(cases []Case) error {
	var kinds []string
	for _, c := range cases {
		if k := c.Op.Kind(); !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	for _, k := range o.Ops {
		if !slices.Contains(kinds, k) {
			return badOption("Ops", "no case has op %q, want one of %s", k, strings.Join(kinds, ", "))
		}
	}
	for i, may := range o.MayRefuse {
		if may.Cases == nil || may.Why == "" {
			return badOption("MayRefuse", "entry %d needs both Cases and Why", i)
		}
	}
	return nil
}

// run runs the case.
func (r *CaseResult) run(ctx context.Context, dev npu.Device, info npu.Info,
	o *ConformanceOptions) {
	kernel := r.Op
	if r.Open && info.AnyRows {
		kernel = withRows(kernel, op.Rows)
	}
	opts := &Options{
		Types: r.Types, Segments: r.Segments, Tolerances: o.Tolerances, References: o.References,
	}
	if len(opts.Segments) == 0 {
		opts.Segments = []Segment{{Rows: max(1, rowsOf(r.Op))}}
	}
	if p, ok := r.Op.(op.Pick); ok {
		opts.Picks = p.Picks
	}
	if o.Mapping != nil {
		opts.Mapping = o.Mapping(r.Op)
	}
	r.Report, r.Err = CheckKernel(ctx, dev, kernel, opts)
	r.Report.Name = r.Name
	if errors.As(r.Err, &r.Refused) {
		r.Err = nil
		for _, may := range o.MayRefuse {
			if may.Cases.MatchString(r.Name) {
				r.Allowed = may.Why
			}
		}
	}
}
