package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/npukit/npukit/npu/cpu"
)

// beside is what the machine could do just before a repetition and just behind it. Where it shares
// its host with others, that changes within seconds.
type beside struct {
	Before cpu.Limits `json:"before"`
	Behind cpu.Limits `json:"behind"`
}

// mean is what the repetition is held against.
func (b beside) mean() (read, peak float64) {
	return (b.Before.ReadBandwidth + b.Behind.ReadBandwidth) / 2, (b.Before.PeakFLOPS + b.Behind.PeakFLOPS) / 2
}

// repeat does one repetition of r's test, in its turn and between two measurements of the machine,
// and adds its speed to r if it counts. What is done tells the time that it took.
func (b *bencher) repeat(ctx context.Context, what string, r *benchResult, counts bool,
	do func() (time.Duration, error)) error {
	if err := b.await(what); err != nil {
		return err
	}
	sample, now, err := b.between(ctx, what, counts, do)
	if err != nil {
		return err
	}
	if counts {
		r.Samples = append(r.Samples, float64(r.Tokens)/sample.Seconds())
		if b.meter != nil {
			r.Beside = append(r.Beside, now)
		}
	}
	if b.next != nil {
		_, err = fmt.Fprintf(b.app.out, "%s\n", what)
	}
	return err
}

// await waits for the line that gives the turn, where turns are given.
func (b *bencher) await(what string) error {
	if b.next == nil {
		return nil
	}
	_, err := b.next.ReadString('\n')
	if err == io.EOF {
		return fmt.Errorf("--turns: stdin ended before %s", what)
	}
	return err
}

// between does a repetition between two measurements. The other program has just had the caches and
// the processors, so a turn that counts goes on until it has lasted b.turn, and the time is the
// mean of all that was done but the first, where there is more.
func (b *bencher) between(ctx context.Context, what string, counts bool,
	do func() (time.Duration, error)) (mean time.Duration, now beside, err error) {
	defer b.app.progress(what)()
	if now.Before, err = b.limits(ctx); err != nil {
		return 0, now, err
	}
	began := time.Now()
	mean, err = do()
	var sum time.Duration
	for n := 1; err == nil && b.next != nil && counts && time.Since(began) < b.turn; n++ {
		var took time.Duration
		took, err = do()
		sum += took
		mean = sum / time.Duration(n)
	}
	if err != nil {
		return 0, now, err
	}
	now.Behind, err = b.limits(ctx)
	return mean, now, err
}

// limits measures what the machine can do; nothing where there is no meter.
func (b *bencher) limits(ctx context.Context) (cpu.Limits, error) {
	if b.meter == nil {
		return cpu.Limits{}, nil
	}
	return b.meter.Measure(ctx)
}
