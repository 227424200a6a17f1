package bench

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/npukit/npukit/npu/cpu"
)

// Limits is the machine's memory bandwidth and arithmetic peak just before and just after a
// repetition. On a shared host they change within seconds.
type Limits struct {
	Before cpu.Limits `json:"before"`
	After  cpu.Limits `json:"behind"`
}

// mean returns the limits that the repetition is compared with.
func (l Limits) mean() (bandwidth, peak float64) {
	return (l.Before.ReadBandwidth + l.After.ReadBandwidth) / 2, (l.Before.PeakFLOPS + l.After.PeakFLOPS) / 2
}

// repeat runs one repetition of r's test between two measurements of the machine. If counts is
// true, it adds the speed to r. do returns the time that it measured.
func (b *Bench) repeat(ctx context.Context, what string, r *Result, counts bool,
	do func() (time.Duration, error)) error {
	if err := b.AwaitTurn(what); err != nil {
		return err
	}
	sample, limits, err := b.between(ctx, what, counts, do)
	if err != nil {
		return err
	}
	if counts {
		r.Samples = append(r.Samples, float64(r.Tokens)/sample.Seconds())
		if b.Meter != nil {
			r.Limits = append(r.Limits, limits)
		}
	}
	if b.Turns != nil {
		_, err = fmt.Fprintf(b.Out, "%s\n", what)
	}
	return err
}

// AwaitTurn waits for the line that starts a turn. It returns at once if b.Turns is nil.
func (b *Bench) AwaitTurn(what string) error {
	if b.Turns == nil {
		return nil
	}
	_, err := b.Turns.ReadString('\n')
	if err == io.EOF {
		return fmt.Errorf("--turns: stdin ended before %s", what)
	}
	return err
}

// between runs a repetition between two measurements. With turns, another program has just used the
// caches and the cores, so a turn that counts repeats do until it has lasted b.MinTurn. mean is then
// the mean of all calls but the first, if there is more than one.
func (b *Bench) between(ctx context.Context, what string, counts bool,
	do func() (time.Duration, error)) (mean time.Duration, limits Limits, err error) {
	defer b.Progress(what)()
	if limits.Before, err = b.measureLimits(ctx); err != nil {
		return 0, limits, err
	}
	began := time.Now()
	mean, err = do()
	var sum time.Duration
	for n := 1; err == nil && b.Turns != nil && counts && time.Since(began) < b.MinTurn; n++ {
		var took time.Duration
		took, err = do()
		sum += took
		mean = sum / time.Duration(n)
	}
	if err != nil {
		return 0, limits, err
	}
	limits.After, err = b.measureLimits(ctx)
	return mean, limits, err
}

// measureLimits measures the machine. It returns zero limits if there is no meter.
func (b *Bench) measureLimits(ctx context.Context) (cpu.Limits, error) {
	if b.Meter == nil {
		return cpu.Limits{}, nil
	}
	return b.Meter.Measure(ctx)
}
