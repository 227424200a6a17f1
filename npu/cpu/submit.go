package cpu

import (
	"context"
	"fmt"
	"time"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu/internal/kernel"
)

// Submit executes the runs in order. It checks all of them before it executes any.
func (d *Device) Submit(ctx context.Context, runs []npu.Run) error {
	if err := d.lock(ctx); err != nil {
		return err
	}
	defer d.unlock()
	launches := 0
	for i := range runs {
		if e, ok := runs[i].Exec.(*executable); ok {
			for j := range e.launches {
				// a Concat is a command for each of its pieces
				launches += max(1, len(e.launches[j].operands)-2)
			}
		}
	}
	b := &d.build
	b.engine, b.ctx = d.engine, ctx
	if err := b.start(launches); err != nil {
		return err
	}
	for i := range runs {
		if err := b.add(i, &runs[i], d); err != nil {
			return err
		}
	}
	flag, stop := d.watch(ctx)
	defer stop()
	trace := npu.Tracer(ctx)
	began := time.Now()
	cancelled, err := b.engine.Run(b.cmds, flag, trace != nil)
	if err != nil {
		return err
	}
	if cancelled {
		return fmt.Errorf("npu/cpu: %w", ctx.Err())
	}
	if trace != nil {
		report(trace, began, runs, b.cmds, b.tags)
	}
	return nil
}

// report turns the recorded times into spans: one per run, and one per launch, or per fused pair,
// with both names.
func report(trace func(npu.Span), began time.Time, runs []npu.Run, cmds []kernel.Command, tags []tag) {
	span := func(name, category string, from, to int64) {
		trace(npu.Span{Name: name, Category: category,
			Start: began.Add(time.Duration(from)), Duration: time.Duration(to - from)})
	}
	for i := 0; i < len(cmds); {
		run, first := tags[i].run, i
		name := runs[run].Name
		launches := runs[run].Exec.Program().Launches
		for i < len(cmds) && tags[i].run == run {
			at, start := tags[i], cmds[i].Start
			for i < len(cmds) && tags[i] == at {
				i++
			}
			tap := launches[at.first].Name
			for j := at.first + 1; j <= at.last; j++ {
				tap += "+" + launches[j].Name
			}
			if name != "" {
				tap = name + "." + tap
			}
			span(tap, "op", start, cmds[i-1].End)
		}
		if name == "" {
			name = runs[run].Exec.Program().Name
		}
		span(name, "program", cmds[first].Start, cmds[i-1].End)
	}
}
