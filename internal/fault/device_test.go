package fault_test

import (
	"context"
	"slices"
	"testing"

	"github.com/npukit/npukit/internal/fault"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// chain computes y = (x + a) + b, in place.
func chain() *npu.Program {
	p := npu.NewProgram("chain")
	x, y := p.In("x", dtype.F32, 2, 4), p.Out("y", dtype.F32, 2, 4)
	a, b := p.In("a", dtype.F32, 2, 4), p.In("b", dtype.F32, 2, 4)
	add := op.Add{Rows: 2, Width: 4}
	p.Launch("first", add, x, a, y)
	p.Launch("second", add, y, b, y)
	return p
}

// results runs chain on x = 1, a = 10, b = 100 with faults, twice, and returns an element of each y.
func results(t *testing.T, inject func(context.Context) *fault.Faults) []float32 {
	t.Helper()
	ctx := context.Background()
	real, err := cpu.Open(&cpu.Options{Threads: 1, Kernels: "go"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { real.Close() })
	dev := fault.Wrap(real, inject)
	exec, err := dev.Load(ctx, chain())
	if err != nil {
		t.Fatal(err)
	}
	defer exec.Close()
	var got []float32
	for round := range 2 {
		var args []npu.Buffer
		for _, v := range []float32{1, 0, 10, 100} {
			b, err := dev.Alloc(ctx, 32)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			for i := range 8 {
				dtype.Float32s(b.Bytes())[i] = v * float32(1+round)
			}
			args = append(args, b)
		}
		if err := dev.Submit(ctx, []npu.Run{{Name: "run", Exec: exec, Args: args}}); err != nil {
			t.Fatal(err)
		}
		got = append(got, dtype.Float32s(args[1].Bytes())[5])
	}
	return got
}

// A fault changes the launches that it is found for, and no others.
func TestFaults(t *testing.T) {
	at := func(name string, f fault.Fault) func(context.Context) *fault.Faults {
		return fault.Always(func(s *fault.Step) fault.Fault {
			if s.Name == name {
				return f
			}
			return nil
		})
	}
	for _, tc := range []struct {
		name   string
		inject func(context.Context) *fault.Faults
		want   []float32
	}{
		{"no faults", func(context.Context) *fault.Faults { return nil }, []float32{111, 222}},
		{"no launch", at("run.third", nil), []float32{111, 222}},
		{"launches together", func(context.Context) *fault.Faults {
			return &fault.Faults{May: func(npu.Launch) bool { return false }}
		}, []float32{111, 222}},
		{"one by itself", func(context.Context) *fault.Faults {
			return &fault.Faults{
				Find: func(*fault.Step) fault.Fault {
					return fault.Edit(func(y []float32, _ int) { y[5]++ })
				},
				May: func(l npu.Launch) bool { return l.Name == "second" },
			}
		}, []float32{112, 223}},
		{"result", at("run.first", fault.Edit(func(y []float32, _ int) { y[5] = 0 })), []float32{100, 200}},
		{"not executed", at("run.second", func(*fault.Step, func() error) error { return nil }),
			[]float32{11, 22}},
		{"operand of another launch", at("run.second", func(s *fault.Step, run func() error) error {
			s.Launch.Args[1] = s.Other("first")[1]
			return run()
		}), []float32{21, 42}},
		{"buffer of the previous run", at("run.second", func(s *fault.Step, run func() error) error {
			if b := s.Launch.Args[1].Arg; s.Previous != nil {
				s.Buffers[b] = s.Previous[b]
			}
			return run()
		}), []float32{111, 122}},
		{"operand in memory", at("run.first", func(s *fault.Step, run func() error) error {
			a := s.Operand(1)
			a.SetRow(1, []float32{0, 0, 0, 0})
			return run()
		}), []float32{101, 202}},
		{"parameter", at("run.second", func(s *fault.Step, run func() error) error {
			o := s.Launch.Op.(op.Add)
			o.Width = 1 // of each row
			s.Launch.Op = o
			s.Reshape()
			return run()
		}), []float32{11, 22}},
	} {
		if got := results(t, tc.inject); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// Other programs, and those of another device, are not confused with wrapped ones.
func TestUnwrappedPrograms(t *testing.T) {
	ctx := context.Background()
	real, err := cpu.Open(&cpu.Options{Threads: 1, Kernels: "go"})
	if err != nil {
		t.Fatal(err)
	}
	defer real.Close()
	dev := fault.Wrap(real, fault.Always(func(*fault.Step) fault.Fault { return nil }))
	exec, err := dev.Load(ctx, chain())
	if err != nil {
		t.Fatal(err)
	}
	defer exec.Close()
	if err := real.Submit(ctx, []npu.Run{{Exec: exec, Args: make([]npu.Buffer, 4)}}); err == nil {
		t.Error("the real device runs a program of the wrapped one")
	}
}
