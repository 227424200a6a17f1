package evaluate

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/npukit/npukit/gate/gatetest"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/skill/internal/gates"
	"github.com/npukit/npukit/skill/internal/journal"
)

// controlPositions is how many ids a gate reads on a wrong device, whose errors are large.
const controlPositions = 24

// controls checks that the gates fail on wrong devices.
type controls struct{ *evaluation }

// control is a gate of the model with wrong devices. The gate must fail on one of them; some
// devices have no effect in plans without the launch that they change.
type control struct {
	gate        gates.Gate
	adversaries []gatetest.Adversary
}

// controlsOf returns a control for every gate of the block and of the model. The gate of far
// positions is tried on a device that is right in the first half of a session.
func controlsOf(bench *gates.Bench) []control {
	named := func(names ...string) (list []gatetest.Adversary) {
		all := gatetest.Adversaries()
		for _, name := range names {
			list = append(list, all[slices.IndexFunc(all, func(a gatetest.Adversary) bool { return a.Name == name })])
		}
		return list
	}
	wrong := map[string][]gatetest.Adversary{
		journal.GateBlock:       named("noise", "RoPE interleaved"),
		journal.GateBlockOps:    named("RoPE interleaved", "noise"),
		journal.GateBlockFar:    {gatetest.Forgetful(max(1, bench.Recipe.SeqLen/2))},
		journal.GateLogits:      named("zeros", "a layer dropped", "noise"),
		journal.GatePaper:       named("twice", "rows swapped", "noise"),
		journal.GateGreedy:      named("zeros", "a layer dropped", "noise"),
		journal.GateDeterminism: named("stale", "noise"),
		journal.GateGolden:      named("zeros", "a layer dropped", "noise"),
	}
	var list []control
	for _, g := range slices.Concat(gates.OfBlock(), gates.OfModel(bench)) {
		list = append(list, control{g, wrong[g.Name]})
	}
	return list
}

// run checks that the gates fail on wrong answers. Gates that pass everything would have passed
// this deployment too.
func (v *controls) run(ctx context.Context) error {
	if err := v.controlKernels(ctx); err != nil {
		return err
	}
	_, err := v.once("control "+journal.GateOracle, func() (int, error) { return 0, v.controlOracle(ctx) })
	if err != nil {
		return err
	}
	if err := v.bench.Models.Close(); err != nil {
		return err
	}
	for _, c := range controlsOf(v.bench) {
		if _, err := v.once("control "+c.gate.Name, func() (int, error) { return 0, v.control(ctx, c) }); err != nil {
			return err
		}
	}
	return nil
}

// control tries a gate of the model on its wrong devices.
func (v *controls) control(ctx context.Context, c control) error {
	caught, err := v.controlModel(ctx, c)
	if err != nil || caught {
		return err
	}
	var names []string
	for _, a := range c.adversaries {
		names = append(names, a.Name)
	}
	v.hold("control "+c.gate.Name, false, "the gate passes devices that are wrong: %s; nothing that it passes is "+
		"worth anything", strings.Join(names, ", "))
	return nil
}

// controlKernels tries the gate of kernels on one kernel of each kind in the plan, with every
// adversary that has an effect on such a kernel.
func (v *controls) controlKernels(ctx context.Context) error {
	p, err := v.bench.Plan()
	if err != nil {
		return err
	}
	kernels, err := gates.KernelsOf(p)
	if err != nil {
		return err
	}
	tried, done, kept := 0, map[string]bool{}, &gatetest.References{}
	for _, k := range kernels {
		kind := k.Op.Kind()
		if done[kind] {
			continue
		}
		done[kind] = true
		n, err := v.once("control "+journal.GateKernel+" "+kind,
			func() (int, error) { return v.controlKernel(ctx, k, kept) })
		if err != nil || v.refused() {
			return err
		}
		tried += n
	}
	v.hold("control "+journal.GateKernel, tried > 0, "%d wrong kernels, of every kind that the plan has, are refused",
		tried)
	return nil
}

// controlKernel tries the gate of kernels on one kernel, and returns how many wrong kernels failed.
func (v *controls) controlKernel(ctx context.Context, k *gates.Kernel, kept *gatetest.References) (tried int,
	err error) {
	dev, opts, _ := v.bench.Options(k)
	opts.References = kept
	places := gates.Places(k, v.bench.Recipe.SeqLen)
	opts.Segments = places[len(places)-1]
	for _, a := range gatetest.Adversaries() {
		if !showsOn(a, k.Op.Kind()) {
			continue
		}
		v.step("control %s: %s where %s", journal.GateKernel, k.Text(), a.Does)
		r, err := gatetest.CheckKernel(ctx, a.Wrap(dev, opts.Tolerances), k.Op, &opts)
		switch {
		case ctx.Err() != nil:
			return tried, ctx.Err()
		case err != nil:
			return tried, v.cannot(err, "control "+journal.GateKernel, "it cannot be tried on %s where %s", k.Text(),
				a.Does)
		case r.OK():
			v.hold("control "+journal.GateKernel, false, "it passes %s where %s", k.Text(), a.Does)
			return tried, nil
		}
		tried++
	}
	return tried, nil
}

// showsOn reports whether an adversary makes every kernel of a kind wrong, in any shape. With
// one row, no two can be swapped, and noise is within the tolerances of some kinds.
func showsOn(a gatetest.Adversary, kind string) bool {
	switch a.Name {
	case "zeros", "twice", "stale", "a NaN":
	case "RoPE interleaved":
		return kind == "RoPE"
	default:
		return false
	}
	return slices.ContainsFunc(a.Probes, func(p gatetest.Probe) bool { return p.Op.Kind() == kind })
}

// controlOracle tries the gate of the oracle on the logits of the text without its first id: right
// numbers at the wrong positions.
func (v *controls) controlOracle(ctx context.Context) error {
	verdict, err := v.oracleLate(ctx)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return v.cannot(err, "control "+journal.GateOracle, "it cannot be tried")
	default:
		v.hold("control "+journal.GateOracle, !verdict.OK(), "logits of positions that are off by one are refused: %v",
			!verdict.OK())
	}
	return nil
}

func (v *controls) oracleLate(ctx context.Context) (gates.Verdict, error) {
	ids, err := v.bench.IDs(ctx)
	if err != nil {
		return nil, err
	}
	ids = ids[:min(len(ids), controlPositions)]
	want, err := gates.LogitsOf(ctx, v.bench.Oracle.NewState(), ids)
	if err != nil {
		return nil, err
	}
	got, err := gates.LogitsOf(ctx, v.bench.Oracle.NewState(), ids[1:])
	if err != nil {
		return nil, err
	}
	return gates.Paper(v.bench, journal.GateOracle, got, want[:len(got)], gates.Thresholds().Formats["oracle"].Logits)
}

// controlModel tries a gate on wrong devices until it fails on one.
func (v *controls) controlModel(ctx context.Context, c control) (caught bool, err error) {
	for _, a := range c.adversaries {
		v.step("control %s: %s", c.gate.Name, a.Does)
		verdict, err := v.askOn(ctx, a.Wrap(apart{v.dev}, nil), c.gate)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case err != nil:
			return true, v.cannot(err, "control "+c.gate.Name, "it cannot be tried on a device where %s", a.Does)
		case !verdict.OK():
			v.hold("control "+c.gate.Name, true, "a device where %s is refused: %s", a.Does,
				gates.Reasons(verdict)[0].Text)
			return true, nil
		}
	}
	return false, nil
}

// askOn runs a gate on the plan on another device.
func (v *controls) askOn(ctx context.Context, dev npu.Device, g gates.Gate) (verdict gates.Verdict, err error) {
	ids, err := v.bench.IDs(ctx)
	if err != nil {
		return nil, err
	}
	m := v.bench.Models.On(dev)
	bench := *v.bench
	bench.Models = m
	bench.Reference = v.bench.Reference.Shortened(ids[:min(len(ids), controlPositions)])
	defer func() { err = errors.Join(err, m.Close()) }()
	return g.Check(ctx, &bench)
}

// apart is a device for adversaries, which run ops one by one. A part of a fused kernel is not a
// program of the array; apart maps it as when kernels are tried alone.
type apart struct{ npu.Device }

func (d apart) Host() npu.Device { return npu.HostOf(d.Device) }

func (d apart) Load(ctx context.Context, p *npu.Program) (npu.Executable, error) {
	if len(p.Launches) == 1 && p.Launches[0].Mapping.Fused != "" {
		q, l := *p, p.Launches[0]
		k := &gates.Kernel{Op: l.Op, Mapping: l.Mapping}
		for _, v := range l.Args {
			k.Types = append(k.Types, p.Args[v.Arg].Type)
		}
		l.Mapping = gates.MappingAlone(k)
		q.Launches = []npu.Launch{l}
		p = &q
	}
	return d.Device.Load(ctx, p)
}
