package gatetest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// ConformanceOptions says what a device is held to. The zero value, and nil, mean the defaults.
type ConformanceOptions struct {
	Size       Size
	Only       func(Case) bool         // nil means all cases
	Tolerances Tolerances              // by default those of [Default]
	References *References             // shared between devices; nil keeps nothing
	Mapping    func(op.Op) npu.Mapping // for devices that look at it
	MayRefuse  []Refusal               // what the device need not be able to do
}

// Refusal allows a device to refuse cases.
type Refusal struct {
	Cases *regexp.Regexp // their names
	Why   string         // for people
}

// CaseResult is what came out of a case. Without Refused and Err the report has the verdict.
type CaseResult struct {
	Case
	Report  gate.Report
	Refused *RefusedError // the device did not load it
	Allowed string        // why that is all right; "" when it is not
	Err     error         // the device, or the suite, failed
}

// Summary is what came out of a conformance suite.
type Summary struct {
	Device  string
	Results []CaseResult // in the order of the table
	LeftOut int          // cases that the device says of itself that it cannot take: several sessions at once
}

// Conformance holds a device to the whole suite, and fails the test with every case that is wrong: one line tests a new device.
//
//	gatetest.Conformance(t, dev, nil)
//
// What the device refuses is logged with its reason.
func Conformance(t testing.TB, dev npu.Device, opts *ConformanceOptions) Summary {
	t.Helper()
	s, err := CheckConformance(t.Context(), dev, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(s)
	if err := s.Err(); err != nil {
		t.Error(err)
	}
	return s
}

// CheckConformance runs the suite on a device, several cases at a time, and gives what came out of each. What is wrong with the device is in the
// summary; the error is that of a context that has ended.
//
// A case that the device does not load counts as refused, with the device's reason, and is a failure unless the options allow it: a device that
// refuses everything does not pass. A device that does not take any number of rows ([npu.Info]) is given programs of fixed shape only, and no runs
// of several sessions.
func CheckConformance(ctx context.Context, dev npu.Device, opts *ConformanceOptions) (Summary, error) {
	var o ConformanceOptions
	if opts != nil {
		o = *opts
	}
	info := dev.Info()
	s := Summary{Device: info.Name}
	for _, c := range Cases(o.Size) {
		switch {
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
				s.Results[i].check(ctx, dev, info, &o)
			}
		})
	}
	wg.Wait()
	return s, ctx.Err()
}

// check runs the case.
func (r *CaseResult) check(ctx context.Context, dev npu.Device, info npu.Info, o *ConformanceOptions) {
	kernel := r.Op
	if r.Open && info.AnyRows {
		kernel = withRows(kernel, op.Rows)
	}
	opts := &Options{Types: r.Types, Segments: r.Segments, Tolerances: o.Tolerances, References: o.References}
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

// OK reports whether the case is right, or rightly refused.
func (r *CaseResult) OK() bool {
	if r.Refused != nil {
		return r.Allowed != ""
	}
	return r.Err == nil && r.Report.OK()
}

// problem says what is wrong, on a line.
func (r *CaseResult) problem() string {
	switch {
	case r.Err != nil:
		return fmt.Sprintf("%s: %v", r.Name, r.Err)
	case r.Refused != nil:
		return fmt.Sprintf("%s: refused, and that is not expected: %v", r.Name, r.Refused.Err)
	}
	return fmt.Sprint(r.Report.Err())
}

// counts are how many cases passed, were refused, and failed.
func (s Summary) counts() (passed, refused, failed int) {
	for i := range s.Results {
		switch r := &s.Results[i]; {
		case !r.OK():
			failed++
		case r.Refused != nil:
			refused++
		default:
			passed++
		}
	}
	return passed, refused, failed
}

// shown bounds the cases that an error lists: enough to see what they have in common.
const shown = 20

// Err is nil when every case is right or rightly refused and at least one was compared; otherwise an error that names the first that are not, and
// wraps [gate.ErrFailed].
func (s Summary) Err() error {
	passed, refused, failed := s.counts()
	if failed == 0 && passed > 0 {
		return nil
	}
	if failed == 0 {
		return fmt.Errorf("%w: %s: nothing was compared, %d cases were refused", gate.ErrFailed, s.Device, refused)
	}
	var b strings.Builder
	n := 0
	for i := range s.Results {
		if r := &s.Results[i]; !r.OK() {
			if n++; n > shown {
				fmt.Fprintf(&b, "\n  and %d more", failed-shown)
				break
			}
			fmt.Fprintf(&b, "\n  %s", r.problem())
		}
	}
	return fmt.Errorf("%w: %s: %d of %d cases%s", gate.ErrFailed, s.Device, failed, len(s.Results), b.String())
}

// String is the numbers of cases, and each reason for a refusal with how many cases it has.
func (s Summary) String() string {
	passed, refused, failed := s.counts()
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d cases passed, %d refused as expected, %d failed", s.Device, passed, refused, failed)
	if s.LeftOut > 0 {
		fmt.Fprintf(&b, ", %d of several sessions left out", s.LeftOut)
	}
	type reason struct {
		first string
		n     int
		err   error
	}
	var reasons []*reason
	by := map[string]*reason{}
	for i := range s.Results {
		r := &s.Results[i]
		if r.Refused == nil || r.Allowed == "" {
			continue
		}
		e := by[r.Allowed]
		if e == nil {
			e = &reason{first: r.Name, err: r.Refused.Err}
			by[r.Allowed], reasons = e, append(reasons, e)
		}
		e.n++
	}
	for _, e := range reasons {
		fmt.Fprintf(&b, "\n  refused %d, such as %s: %v", e.n, e.first, e.err)
	}
	return b.String()
}
