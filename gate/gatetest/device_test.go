package gatetest_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/gate/gatetest"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// apart is a device whose memory is not the host's: only Sync copies between the two. It takes
// programs of fixed shape only, one session at a time, and no quantised weights.
type apart struct {
	npu.Device
	refuse func(*npu.Program) error
	lazy   bool // results never come back
	over   bool // the byte after each result is written too
}

func (d *apart) Info() npu.Info {
	i := d.Device.Info()
	i.Name, i.AnyRows = "apart", false
	return i
}

// memory has a buffer of the device and the host's copy.
type memory struct {
	npu.Buffer
	host []byte
	d    *apart
}

func (b *memory) Bytes() []byte { return b.host }

func (b *memory) Sync(dir npu.Direction, offset, n int) error {
	host, dev := b.host[offset:][:n], b.Buffer.Bytes()[offset:][:n]
	if dir == npu.ToDevice {
		copy(dev, host)
	} else if !b.d.lazy {
		copy(host, dev)
	}
	return nil
}

func (d *apart) Alloc(ctx context.Context, n int) (npu.Buffer, error) {
	b, err := d.Device.Alloc(ctx, n)
	if err != nil {
		return nil, err
	}
	return &memory{b, make([]byte, n), d}, nil
}

func (d *apart) Load(ctx context.Context, p *npu.Program) (npu.Executable, error) {
	for _, a := range p.Args {
		if a.Kind == npu.State {
			continue
		}
		for _, n := range a.Shape {
			if n < 0 {
				return nil, fmt.Errorf("%s is %s: write the numbers", a.Name, op.ShapeString(a.Shape))
			}
		}
	}
	if err := d.refuse(p); err != nil {
		return nil, err
	}
	return d.Device.Load(ctx, p)
}

func (d *apart) Submit(ctx context.Context, runs []npu.Run) error {
	inner := func(b npu.Buffer) npu.Buffer {
		if m, ok := b.(*memory); ok {
			return m.Buffer
		}
		return b
	}
	for _, r := range runs {
		if len(r.Segments) > 1 {
			return errors.New("one session at a time")
		}
		var args []npu.Buffer
		for _, b := range r.Args {
			args = append(args, inner(b))
		}
		r.Args = args
		if len(r.Segments) == 1 {
			seg := r.Segments[0]
			var state []npu.Buffer
			for _, b := range seg.State {
				state = append(state, inner(b))
			}
			seg.State = state
			r.Segments = []npu.Segment{seg}
		}
		if err := d.Device.Submit(ctx, []npu.Run{r}); err != nil {
			return err
		}
		for i, a := range r.Exec.Program().Args {
			if a.Kind == npu.Out && d.over {
				r.Args[i].Bytes()[a.Type.Bytes((op.Size{}).Elements(a.Shape))] = 1
			}
		}
	}
	return nil
}

func none(*npu.Program) error { return nil }

func noBlocks(p *npu.Program) error {
	for _, a := range p.Args {
		if a.Type.Quantized() {
			return fmt.Errorf("no kernel reads %s", a.Type)
		}
	}
	return nil
}

// few leaves one case of thirty, of every kind of op some; under the race detector only the first
// of each.
func few() func(gatetest.Case) bool {
	n := map[string]int{}
	return func(c gatetest.Case) bool {
		key := c.Op.Kind() + c.Types[len(c.Types)/2].String()
		n[key]++
		return n[key] == 1 || n[key]%30 == 1 && !raced
	}
}

// The suite reads a device's Info, syncs both ways, and fails for refusals that are not allowed.
func TestADeviceWithMemoryOfItsOwnConforms(t *testing.T) {
	dev := &apart{Device: open(t, "go"), refuse: noBlocks}
	blocks := []gatetest.Refusal{{Cases: regexp.MustCompile(`Q\d_`),
		Why: "no kernels for quantised weights"}}
	s := gatetest.Conformance(t, dev, &gatetest.ConformanceOptions{Only: few(), MayRefuse: blocks})
	refused := 0
	for _, r := range s.Results {
		if r.Refused != nil {
			refused++
		}
	}
	if refused == 0 || s.LeftOut == 0 && !raced || !strings.Contains(s.String(), "no kernel reads Q") {
		t.Errorf("want quantised weights refused, with the reason, and runs of several sessions left "+
			"out:\n%v", s)
	}

	for name, bad := range map[string]struct {
		dev  *apart
		may  []gatetest.Refusal
		want string
	}{
		"a refusal that nobody expects": {&apart{Device: dev.Device, refuse: noBlocks}, nil,
			"cases refused, and not allowed to, first Embed"},
		"everything refused as expected": {&apart{Device: dev.Device,
			refuse: func(*npu.Program) error {
				return errors.New("not " +
					"today")
			}}, []gatetest.Refusal{{Cases: regexp.MustCompile(""), Why: "all"}}, "nothing was " +
			"compared"},
		"results that are not synced": {&apart{Device: dev.Device, refuse: noBlocks, lazy: true},
			blocks, "NaN, infinite"},
		"a byte written behind each result": {&apart{Device: dev.Device, refuse: noBlocks, over: true},
			blocks, "bytes after the result were written"},
	} {
		s, err := gatetest.CheckConformance(t.Context(), bad.dev,
			&gatetest.ConformanceOptions{Only: few(), MayRefuse: bad.may})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Err(); !errors.Is(err, gate.ErrFailed) || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: got %v, want a failure about %q", name, err, bad.want)
		}
	}
}

// said is a device whose Info states which weights it rounds, true or not.
type said struct {
	npu.Device
	rounded []dtype.Type
}

func (d said) Info() npu.Info {
	i := d.Device.Info()
	i.Rounded = d.rounded
	return i
}

// The reference rounds weights exactly if the device's Info lists their type, so a wrong Info
// fails.
func TestRoundedWeightsAreWhatTheDeviceSays(t *testing.T) {
	dev := open(t, "go") // rounds none
	rows := map[string]int{"few": dev.Info().FewRows, "more": dev.Info().FewRows + 1}
	for _, tc := range []struct {
		rows        string
		activations dtype.Type
		rounded     []dtype.Type
		right       bool
	}{
		{"more", dtype.BF16, nil, true},
		{"more", dtype.BF16, []dtype.Type{dtype.Q4_1}, true},
		{"more", dtype.BF16, []dtype.Type{dtype.Q4_0}, false},
		{"few", dtype.BF16, []dtype.Type{dtype.Q4_0}, true},
		{"more", dtype.F32, []dtype.Type{dtype.Q4_0}, true},
	} {
		opts := &gatetest.Options{Types: []dtype.Type{tc.activations, dtype.Q4_0, dtype.F32}}
		report, err := gatetest.CheckKernel(t.Context(), said{dev, tc.rounded},
			op.MatMul{M: rows[tc.rows], K: 256, N: 64, TransB: true}, opts)
		if err != nil {
			t.Fatal(err)
		}
		if report.OK() != tc.right {
			t.Errorf("%s rows of %v, said to be rounded %v: want right %v: %v", tc.rows, tc.activations,
				tc.rounded, tc.right, report)
		}
	}
}

func TestOptionsThatDoNotGoTogetherAreErrors(t *testing.T) {
	dev := open(t, "go")
	norm := op.RMSNorm{Rows: 4, Width: 64, Eps: 1e-5}
	for want, tc := range map[string]struct {
		o    op.Op
		opts *gatetest.Options
	}{
		"the op is nil": {nil, nil},
		"Width is 0":    {op.RMSNorm{Rows: 4}, nil},
		"2 types, RMSNorm has 3 operands": {norm, &gatetest.Options{Types: []dtype.Type{dtype.F32,
			dtype.F32}}},
		"Segments: 3 rows, RMSNorm has 4": {norm,
			&gatetest.Options{Segments: []gatetest.Segment{{Rows: 3}}}},
		"0 rows at position 0": {norm, &gatetest.Options{Segments: []gatetest.Segment{{}}}},
		"1 rows at position -1": {norm, &gatetest.Options{Segments: []gatetest.Segment{{Rows: 1,
			Pos: -1}}}},
		"Picks: is -1": {op.Pick{Picks: op.Picks, Rows: 4, Width: 8},
			&gatetest.Options{Picks: -1}},
		"takes [F32 BF16] as x": {norm, &gatetest.Options{Activations: dtype.F16}},
		"whole blocks of 256": {op.MatMul{M: 1, K: 64, N: 8, TransB: true},
			&gatetest.Options{Weights: dtype.Q4_K}},
		"no tolerance for RMSNorm": {norm, &gatetest.Options{
			Tolerances: func(op.Op, dtype.Type) (gate.Tolerance, bool) { return gate.Tolerance{}, false }}},
	} {
		var bad *gate.InputError
		if _, err := gatetest.CheckKernel(t.Context(), dev, tc.o, tc.opts); !errors.As(err, &bad) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an InputError about %q", err, want)
		}
	}
	var refused *gatetest.RefusedError
	_, err := gatetest.CheckKernel(t.Context(), &apart{Device: dev, refuse: none},
		op.RMSNorm{Rows: op.Rows, Width: 64, Eps: 1e-5}, nil)
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "write the numbers") {
		t.Errorf("got %v, want a *RefusedError with the device's reason", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := gatetest.CheckConformance(ended, dev, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled suite gives %v", err)
	}
}

func TestTimingIsOfSoManyRuns(t *testing.T) {
	dev := open(t, "go")
	o := op.Attention{Rows: op.Rows, Heads: 4, KVHeads: 2, HeadDim: 64, Cached: true}
	got, err := gatetest.TimeKernel(t.Context(), dev, o,
		&gatetest.Options{Segments: []gatetest.Segment{{Rows: 1, Pos: 99}}}, 5)
	if err != nil {
		t.Fatal(err)
	}
	if got.Runs != 5 || got.Min <= 0 || got.Median < got.Min ||
		got.FLOPs != o.FLOPs(op.Size{Rows: 1, Pos: 99}) || got.Bytes < 2*2*100*64*2 {
		t.Errorf("got %+v", got)
	}
	if _, err := gatetest.TimeKernel(t.Context(), dev, o, nil, 0); err == nil {
		t.Error("no runs were timed, and no error says so")
	}
}
