package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/npukit/npukit/npu/cpu"
)

// limits is the machine's bandwidth and arithmetic peak just before and after a repetition. On a
// shared host they change within seconds.
type beside struct {
	Before cpu.Limits `json:"before"`
	Behind cpu.Limits `json:"behind"`
}

// mean returns the limits that the repetition is compared with.
func (b beside) mean() (read, peak float64) {
	return (b.Before.ReadBandwidth + b.Behind.ReadBandwidth) / 2, (b.Before.PeakFLOPS + b.Behind.PeakFLOPS) / 2
}

// repeat runs one repetition of r's test between two measurements of the machine. If counts is
// true, it adds the speed to r. do returns the time that it measured.
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

// await waits for the line that starts a turn. Without --turns it returns at once.
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

// between runs a repetition between two measurements. With --turns the other program has just used
// the caches and the cores, so do is repeated until the turn has lasted b.turn, and mean is the
// mean of all calls but the first if there is more than one.
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

// limits measures the machine. It returns zero limits if there is no meter.
func (b *bencher) limits(ctx context.Context) (cpu.Limits, error) {
	if b.meter == nil {
		return cpu.Limits{}, nil
	}
	return b.meter.Measure(ctx)
}
