package gatetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/internal/fault"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// overrun is the metric of writes beyond the end of a result.
const overrun = "written beyond the end"

// Kernel tests a device's kernel for an op against the oracle, every element, and fails the test if
// the tolerance does not hold. It is [CheckKernel] for tests. Nil options mean the defaults:
//
//	gatetest.Kernel(t, dev, op.RMSNorm{Rows: 64, Width: 2048, Eps: 1e-5}, nil)
func Kernel(t testing.TB, dev npu.Device, o op.Op, opts *Options) gate.Report {
	t.Helper()
	r, err := CheckKernel(t.Context(), dev, o, opts)
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK() {
		t.Errorf("%v", r)
	}
	return r
}

// CheckKernel runs one op on a device, in a program of one launch, and judges every element of the
// result against [oracle.Compute]. The device runs twice: first on other activations, which reveals
// stale data, then on those that are judged. Before each run the result, and cache positions that
// the op must not read, are filled with NaN. Bytes after the result must stay unchanged.
//
// Wrong numbers are in the report. The error is a [gate.InputError], a [RefusedError], or the
// device's own.
func CheckKernel(ctx context.Context, dev npu.Device, o op.Op, opts *Options) (_ gate.Report,
	err error) {
	k, err := newKernel(ctx, dev, o, opts)
	if err != nil {
		return gate.Report{}, err
	}
	defer func() { err = errors.Join(err, k.close()) }()
	for _, seed := range []uint64{k.opts.Seed + otherSeed, k.opts.Seed} {
		if err := k.fill(seed); err != nil {
			return gate.Report{}, err
		}
		if err := k.submit(ctx); err != nil {
			return gate.Report{}, err
		}
	}
	return k.judge(ctx)
}

// otherSeed makes the activations of the first run differ from those that are judged.
const otherSeed = 1 << 40

// kernel is an op on a device, with its operands.
type kernel struct {
	dev   npu.Device
	o     op.Op
	opts  Options
	types []dtype.Type
	size  op.Size
	tol   gate.Tolerance

	weights *operands // the constants were made from these
	now     *operands // of the next run
	exec    npu.Executable
	run     npu.Run
	closes  []func() error // in order of creation
}

// newKernel creates operands from opts.Seed, loads the program and allocates its buffers.
func newKernel(ctx context.Context, dev npu.Device, o op.Op, opts *Options) (_ *kernel, err error) {
	if err := needDevice(dev); err != nil {
		return nil, err
	}
	if o == nil {
		return nil, badOption("o", "the op is nil")
	}
	if err := o.Validate(); err != nil {
		return nil, badOption("o", "%v", err)
	}
	k := &kernel{dev: dev, o: o}
	if opts != nil {
		k.opts = *opts
	}
	if k.types, err = k.opts.types(o); err != nil {
		return nil, err
	}
	if k.size, err = k.opts.place(o); err != nil {
		return nil, err
	}
	p, err := k.program()
	if err != nil {
		return nil, err
	}
	find := k.opts.Tolerances
	if find == nil {
		find = Default(dev.Info())
	}
	out := k.types[fault.Written(o)]
	tol, ok := find(o, out)
	if !ok {
		return nil, badOption("Tolerances", "no tolerance for %s stored as %s: set one in "+
			"Options.Tolerances", o.Kind(), out)
	}
	k.tol = againstOracle(tol, o, k.opts.Segments)
	if k.weights, err = makeOperands(o, k.types, &k.opts, k.size, k.exact(), k.opts.Seed,
		nil); err != nil {
		return nil, err
	}
	if k.exec, err = dev.Load(ctx, p); err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		return nil, &RefusedError{Op: o, Err: err}
	}
	k.closes = append(k.closes, k.exec.Close)
	if err := k.bind(ctx); err != nil {
		return nil, errors.Join(err, k.close())
	}
	return k, nil
}

// program returns a program with the op as its only launch.
func (k *kernel) program() (*npu.Program, error) {
	p := npu.NewProgram("kernel")
	var refs []npu.Ref
	for i, operand := range k.o.Operands() {
		refs = append(refs, p.Arg(roleOf(k.o, i).kind(), operand.Name, k.types[i], operand.Shape...))
	}
	p.Launch(k.o.Kind(), k.o, refs...)
	p.Map(k.opts.Mapping)
	if err := p.Err(); err != nil {
		return nil, badOption("Types", "%v", err)
	}
	return p, nil
}

// bind allocates a buffer for each argument and each cache, and makes the constants.
func (k *kernel) bind(ctx context.Context) error {
	alloc := func(dev npu.Device, n int) (npu.Buffer, error) {
		b, err := dev.Alloc(ctx, n)
		if err == nil {
			k.closes = append(k.closes, b.Close)
		}
		return b, err
	}
	k.run = npu.Run{Name: "kernel", Exec: k.exec, Args: make([]npu.Buffer, len(k.types)),
		Picks: k.size.Picks}
	for i, x := range k.weights.list {
		switch roleOf(k.o, i) {
		case cache:
		case constant:
			// A Tensor must not be in the Go heap; a buffer of the host is not.
			host, err := alloc(npu.HostOf(k.dev), len(x.bytes))
			if err != nil {
				return err
			}
			copy(host.Bytes(), x.bytes)
			shape := k.o.Operands()[i].Shape
			from := weight{Type: k.types[i], Shape: shape, Data: host.Bytes()[:len(x.bytes)]}
			c, err := k.dev.Const(ctx, npu.Source{Layout: npu.T(k.o.Operands()[i].Name), From: from})
			if err != nil {
				return err
			}
			k.closes = append(k.closes, c.Close)
			k.run.Args[i] = c
		default:
			b, err := alloc(k.dev, len(x.bytes))
			if err != nil {
				return err
			}
			k.run.Args[i] = b
		}
	}
	for s, seg := range k.opts.Segments {
		segment := npu.Segment{Rows: seg.Rows, Pos: seg.Pos}
		for _, c := range k.weights.caches[s] {
			b, err := alloc(k.dev, len(c.bytes))
			if err != nil {
				return err
			}
			segment.State = append(segment.State, b)
		}
		k.run.Segments = append(k.run.Segments, segment)
	}
	if k.stateless() {
		k.run.Segments, k.run.Picks = nil, 0
	}
	return nil
}

// stateless reports whether every dimension in the program is fixed.
func (k *kernel) stateless() bool {
	for _, operand := range k.o.Operands() {
		for _, d := range operand.Shape {
			if d < 0 {
				return false
			}
		}
	}
	return true
}

// weight is a tensor under any name.
type weight npu.Tensor

func (w weight) Tensor(string) (npu.Tensor, error) { return npu.Tensor(w), nil }

// fill writes operands of a seed into all buffers except the constants, and syncs them to the
// device.
func (k *kernel) fill(seed uint64) error {
	k.now = k.weights
	if seed != k.opts.Seed {
		var err error
		if k.now, err = makeOperands(k.o, k.types, &k.opts, k.size, k.exact(), seed,
			k.weights); err != nil {
			return err
		}
	}
	put := func(b npu.Buffer, data []byte) error {
		copy(b.Bytes(), data)
		return b.Sync(npu.ToDevice, 0, len(data))
	}
	for i, b := range k.run.Args {
		if r := roleOf(k.o, i); r == constant || r == cache {
			continue
		}
		if err := put(b, k.now.list[i].bytes); err != nil {
			return err
		}
	}
	for s, seg := range k.run.Segments {
		for j, b := range seg.State {
			if err := put(b, k.now.caches[s][j].bytes); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *kernel) submit(ctx context.Context) error {
	if err := k.run.Check(); err != nil {
		return fmt.Errorf("gatetest: %w", err)
	}
	return k.dev.Submit(ctx, []npu.Run{k.run})
}

// judge reads the result back and compares it with the oracle's.
func (k *kernel) judge(ctx context.Context) (gate.Report, error) {
	i := fault.Written(k.o)
	var got []byte
	extra := 0
	if r := roleOf(k.o, i); r == cache {
		at := 0 // index among the caches
		for j := range i {
			if roleOf(k.o, j) == cache {
				at++
			}
		}
		for _, seg := range k.run.Segments {
			b := seg.State[at]
			if err := b.Sync(npu.FromDevice, 0, b.Len()); err != nil {
				return gate.Report{}, err
			}
			got = append(got, b.Bytes()...)
		}
	} else {
		b, n := k.run.Args[i], len(k.now.list[i].bytes)
		if err := b.Sync(npu.FromDevice, 0, n); err != nil {
			return gate.Report{}, err
		}
		got = b.Bytes()[:n-guard]
		for _, v := range b.Bytes()[n-guard : n] {
			if v != poison {
				extra++
			}
		}
	}
	info := k.dev.Info()
	want, err := k.opts.References.get(referenceKey(k.o, k.types, &k.opts, k.size, k.exact()),
		func() ([]float32, error) {
			return expected(ctx, k.o, k.size, k.opts.Segments, k.now)
		})
	if err != nil {
		return gate.Report{}, fmt.Errorf("gatetest: %w", err)
	}
	shape := k.o.Operands()[i].Shape
	r, err := compare(got, k.types[i], want, k.size.Resolve(shape[len(shape)-1]), k.tol)
	if err != nil {
		return r, err
	}
	r.Name = fmt.Sprintf("%s%+v %v on %s", k.o.Kind(), k.o, k.types, info.Name)
	if extra > 0 {
		r.Reasons = append(r.Reasons, gate.Reason{Metric: overrun,
			Text: fmt.Sprintf("%d of the %d bytes after the result were written: does a tile exceed the "+
				"rows?",
				extra, guard)})
	}
	return r, nil
}

// compare passes bytes to the gate as their type.
func compare(got []byte, typ dtype.Type, want []float32, width int,
	tol gate.Tolerance) (gate.Report, error) {
	switch typ {
	case dtype.F32:
		return gate.Check(dtype.Float32s(got), want, width, tol)
	case dtype.F16:
		return gate.Check(dtype.Float16s(got), want, width, tol)
	case dtype.BF16:
		return gate.Check(dtype.BFloat16s(got), want, width, tol)
	}
	return gate.Report{}, fmt.Errorf("gatetest: results of type %s cannot be compared", typ)
}

// close closes everything in reverse order of creation.
func (k *kernel) close() error {
	var list []error
	for i := len(k.closes) - 1; i >= 0; i-- {
		list = append(list, k.closes[i]())
	}
	return errors.Join(list...)
}
