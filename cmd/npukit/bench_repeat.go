package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/npukit/npukit/npu/cpu"
)

// beside is what the machine could do just before a repetition and just behind it. Where it shares its host with others, that changes within seconds.
type beside struct {
	Before cpu.Limits `json:"before"`
	Behind cpu.Limits `json:"behind"`
}

// mean is what the repetition is held against.
func (b beside) mean() (read, peak float64) {
	return (b.Before.ReadBandwidth + b.Behind.ReadBandwidth) / 2, (b.Before.PeakFLOPS + b.Behind.PeakFLOPS) / 2
}

// coldFor is how long a turn that counts lasts at least, because the other program has just had the caches and the processors: short repetitions are done again, and the
// last counts.
const coldFor = time.Second

// repeat does one repetition of a test, in its turn and between two measurements of the machine, and adds its speed to r if it counts.
func (b *bencher) repeat(ctx context.Context, what string, r *benchResult, counts bool, do func() (tokensPerS float64, err error)) error {
	if b.next != nil {
		if _, err := b.next.ReadSlice('\n'); err != nil {
			if err == io.EOF {
				err = fmt.Errorf("--turns: stdin ended before %s", what)
			}
			return err
		}
	}
	done := b.app.progress(what)
	defer done()
	var now beside
	var err error
	if now.Before, err = b.limits(ctx); err != nil {
		return err
	}
	began := time.Now()
	speed, err := do()
	for err == nil && b.next != nil && counts && time.Since(began) < coldFor {
		speed, err = do()
	}
	if err != nil {
		return err
	}
	if now.Behind, err = b.limits(ctx); err != nil {
		return err
	}
	if counts {
		r.Samples = append(r.Samples, speed)
		if b.meter != nil {
			r.Beside = append(r.Beside, now)
		}
	}
	if b.next != nil {
		_, err = fmt.Fprintf(b.app.out, "%s\n", what)
	}
	return err
}

// limits measures what the machine can do; nothing on a virtual device.
func (b *bencher) limits(ctx context.Context) (cpu.Limits, error) {
	if b.meter == nil {
		return cpu.Limits{}, nil
	}
	return b.meter.Measure(ctx)
}
