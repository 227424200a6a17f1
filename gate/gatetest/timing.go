package gatetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// Timing is the time of a kernel around Submit, dispatch included.
type Timing struct {
	Runs   int           `json:"runs"`
	Min    time.Duration `json:"min_ns"`
	Median time.Duration `json:"median_ns"`
	FLOPs  float64       `json:"flops"` // of one run
	Bytes  float64       `json:"bytes"` // minimum that one run moves
}

// maxTimed bounds the runs of a timing.
const maxTimed = 1 << 20

// TimeKernel times a kernel, set up as in [CheckKernel], over a number of runs after one warm-up.
// It does not check the results. On a virtual device it measures the simulation.
func TimeKernel(ctx context.Context, dev npu.Device, o op.Op, opts *Options, runs int) (_ Timing,
	err error) {
	if runs < 1 || runs > maxTimed {
		return Timing{}, badOption("runs", "is %d, want 1 to %d", runs, maxTimed)
	}
	k, err := newKernel(ctx, dev, o, opts)
	if err != nil {
		return Timing{}, err
	}
	defer func() { err = errors.Join(err, k.close()) }()
	if err := k.fill(k.opts.Seed); err != nil {
		return Timing{}, err
	}
	if err := k.submit(ctx); err != nil {
		return Timing{}, err
	}
	took := make([]time.Duration, runs)
	for i := range took {
		start := time.Now()
		if err := dev.Submit(ctx, []npu.Run{k.run}); err != nil {
			return Timing{}, err
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	t := Timing{Runs: runs, Min: took[0], Median: took[runs/2]}
	for _, s := range k.opts.Segments {
		k.size.Pos = max(k.size.Pos, s.Pos)
	}
	t.FLOPs, t.Bytes = o.FLOPs(k.size), op.Bytes(o, k.types, k.size)
	return t, nil
}
