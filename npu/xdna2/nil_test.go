package xdna2

import (
	"testing"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// Nil ops and programs are errors.
func TestNilArguments(t *testing.T) {
	clock, reg := NewClock(HostNpukit()), PublishedRegistry()
	for name, call := range map[string]func() error{
		"ShapeOf":     func() error { _, _, err := ShapeOf(nil, op.Size{}); return err },
		"Check":       func() error { return Check(nil, NPU2()) },
		"violations":  func() error { _, err := violations(nil, nil); return err },
		"CheckLaunch": func() error { return CheckLaunch(nil, nil, npu.Mapping{}, nil) },
		"Model.cost": func() error {
			_, err := defaultModel().cost(nil, nil, npu.Mapping{}, op.Size{})
			return err
		},
		"Clock.Launch":  func() error { _, err := clock.Launch(nil, nil, npu.Mapping{}, op.Size{}); return err },
		"Clock.Program": func() error { _, err := clock.Program(nil, op.Size{}); return err },
		"Clock.run":     func() error { _, err := clock.run("r", []kernelRun{{Name: "w"}}, op.Size{}); return err },
		"Registry.find": func() error { _, err := reg.find(nil, dtype.BF16, npu.Mapping{}, op.Size{}); return err },
		"Registry.Candidates": func() error {
			_, err := reg.Candidates(nil, dtype.BF16, op.Size{})
			return err
		},
	} {
		if err := call(); err == nil {
			t.Errorf("%s: no error for nil", name)
		}
	}
	if Fits(nil, nil, npu.Mapping{}, nil) {
		t.Error("Fits(nil) = true")
	}
}

// A nil array means NPU2.
func TestNilArray(t *testing.T) {
	p := npu.NewProgram("add")
	x, y := p.In("x", dtype.BF16, 512, 1024), p.Out("y", dtype.BF16, 512, 1024)
	add := op.Add{Rows: 512, Width: 1024}
	p.Launch("add", add, x, x, y)
	for _, m := range []npu.Mapping{{Tile: []int{1024}, Herd: []int{8, 1}}, {Tile: []int{1024}, Herd: []int{9, 1}}} {
		p.Launches[0].Mapping = m
		if got, want := Check(p, nil), Check(p, NPU2()); (got == nil) != (want == nil) {
			t.Errorf("Check(%v): %v with a nil array, %v with NPU2", m, got, want)
		}
		if got, want := CheckLaunch(add, nil, m, nil), CheckLaunch(add, nil, m, NPU2()); (got == nil) != (want == nil) {
			t.Errorf("CheckLaunch(%v): %v with a nil array, %v with NPU2", m, got, want)
		}
		if got, want := Fits(add, nil, m, nil), Fits(add, nil, m, NPU2()); got != want {
			t.Errorf("Fits(%v): %v with a nil array, %v with NPU2", m, got, want)
		}
	}
	for _, n := range []int{1, 100} {
		if got, want := CheckContexts(n, nil), CheckContexts(n, NPU2()); (got == nil) != (want == nil) {
			t.Errorf("CheckContexts(%d): %v with a nil array, %v with NPU2", n, got, want)
		}
	}
}
