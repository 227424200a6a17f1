package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"github.com/npukit/npukit/model/checkpoint"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/npukit/npukit/internal/bench"
	"github.com/npukit/npukit/internal/output"
	"github.com/npukit/npukit/internal/peakrss"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
)

func benchCommand(a *app) *cobra.Command {
	b := &bencher{app: a, model: modelFlags{apart: true}}
	cmd := &cobra.Command{
		Use:   "bench MODEL",
		Short: "Measure prompt and decode speed",
		Long: `Bench measures tokens per second, with the tests of llama-bench. ppN reads a prompt of N
tokens from an empty context; tgN decodes N tokens one by one. N@D does the same after D
tokens of context. Each test runs once to warm up and then --reps times; the figures are
medians, with the slowest and the fastest run. Token ids are random. Tokenizing and text
do not count.

With --sessions, tg tests also run in that many concurrent sessions, each with its own
text, and the table compares their total speed with one session's. Every text must equal
the one that its session generates alone.

The table also shows which share of this machine's memory bandwidth and arithmetic peak a
test needs at least; both are measured before and after every repetition. Decode reads
every weight for every token, so it is memory-bound. Long prompts are compute-bound.

With --turns, every repetition, warm-up included, waits for a line on stdin and prints a
line when it is done; one more line ends the command. That lets two programs take turns.
A turn lasts at least a second: short repetitions repeat, and the mean of all but the
first counts.`,
		Example: `  npukit bench SmolLM2-135M-Instruct-Q4_1
  npukit bench model.gguf --pp 128,512 --tg 64,64@1024 --reps 10 --json
  npukit bench Llama-3.2-1B --pp 0 --tg 32 --sessions 2,4,8`,
		Args: arguments("MODEL"),
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error { return b.run(ctx, args[0]) }),
	}
	b.model.add(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&b.pp, "pp", []string{"512"}, "prompt lengths `N[@D],...`; 0 for none")
	flags.StringSliceVar(&b.tg, "tg", []string{"64"}, "numbers of tokens to generate `N[@D],...`; 0 for none")
	flags.IntSliceVar(&b.sessions, "sessions", nil, "also run the tg tests in `N,...` concurrent sessions")
	b.reps = 5
	flags.Var((*positive)(&b.reps), "reps", "repetitions `N`")
	flags.BoolVar(&b.json, "json", false, "print a JSON list")
	flags.BoolVar(&b.turns, "turns", false, "take turns with another program, one line on stdin for each")
	return cmd
}

// bencher is one execution of `npukit bench`.
type bencher struct {
	app      *app
	model    modelFlags
	pp, tg   []string
	reps     int
	sessions []int
	turns    bool
	json     bool
}

// maxSessions limits --sessions. Each session has a KV cache of its own and also runs alone.
const maxSessions = 256

// tests returns the tests that the flags select.
func (b *bencher) tests() ([]bench.Test, error) {
	tests, err := bench.ParseTests(b.pp, b.tg)
	if err != nil {
		return nil, usageError{err}
	}
	for _, n := range b.sessions {
		if n < 1 || n > maxSessions {
			return nil, usagef("--sessions is %d, want 1 to %d", n, maxSessions)
		}
	}
	switch {
	case len(tests) == 0:
		return nil, usagef("nothing to measure: --pp and --tg are both 0")
	case len(b.sessions) > 0 && !slices.ContainsFunc(tests, func(t bench.Test) bool { return t.Decode }):
		return nil, usagef("--sessions needs a --tg test: --tg is 0")
	}
	return tests, nil
}

func (b *bencher) run(ctx context.Context, arg string) (err error) {
	tests, err := b.tests()
	if err != nil {
		return err
	}
	dev, err := b.model.deviceFlags.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	m := &bench.Bench{Device: dev, Reps: b.reps, Progress: b.app.progress, Out: b.app.out, MinTurn: time.Second}
	software, _ := dev.(*cpu.Device)
	switch {
	case b.turns && (software == nil || len(b.sessions) > 0):
		return usagef("--turns needs --device cpu and no --sessions")
	case software != nil:
		// The meter's buffers are allocated before anything else, so that they can be subtracted
		// from the peak RSS.
		if m.Meter, err = software.NewMeter(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.Meter.Close()) }()
	case len(b.sessions) > 0:
		return usagef("--sessions needs a device that is measured: a virtual device predicts the speed of " +
			"one session")
	}
	if b.turns {
		m.Turns = bufio.NewReader(b.app.in)
	}
	var load time.Duration
	if m.Model, load, err = b.model.openOn(ctx, b.app, dev, arg); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Model.Close()) }()
	results, err := b.measure(ctx, m, tests)
	if err != nil {
		return err
	}
	base := setupOf(m)
	base.LoadSeconds = load.Seconds()
	for i := range results {
		results[i].Model = checkpoint.Name(m.Model.Checkpoint().Path())
		results[i].Setup = base
	}
	return b.output(results)
}

// measure runs all tests: first in one session each, then in concurrent sessions.
func (b *bencher) measure(ctx context.Context, m *bench.Bench, tests []bench.Test) ([]bench.Result, error) {
	results := []bench.Result{}
	for _, t := range tests {
		r, err := m.Run(ctx, t)
		if err == nil {
			r.Finish()
			err = r.SetRho(m.Model.Plan())
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.Name, err)
		}
		results = append(results, r)
	}
	for _, t := range tests {
		for _, n := range b.sessions {
			if !t.Decode {
				continue
			}
			r, err := m.RunSessions(ctx, t, n)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.Name, err)
			}
			r.Finish()
			results = append(results, r)
		}
	}
	return results, m.AwaitTurn("the end")
}

// setupOf returns the setup of the tests. The peak RSS is that of the tests, so it must be called
// after them.
func setupOf(m *bench.Bench) bench.Setup {
	info, ck := m.Device.Info(), m.Model.Checkpoint()
	s := bench.Setup{
		Device: info.Kind, Kernels: kernelsOf(m.Device), Threads: info.Threads, DType: ck.Config().DType.String(),
		Activations: m.Model.Plan().Activations.String(), Parameters: ck.Parameters(), Machine: processor(),
	}
	if most := peakrss.Bytes(); most > 0 {
		s.PeakRSS = most
		if m.Meter != nil {
			s.PeakRSS = max(0, most-m.Meter.Bytes())
		}
	}
	return s
}

// output prints the results. It returns an error if concurrent sessions generated wrong texts.
func (b *bencher) output(results []bench.Result) error {
	var err error
	if b.json {
		err = output.JSON(b.app.out, results)
	} else {
		err = printBench(b.app.out, results)
	}
	for _, r := range results {
		if err == nil && r.Together != nil && !r.Together.SameText {
			err = fmt.Errorf("%s: concurrent sessions generate other texts than each session alone", r.Name)
		}
	}
	return err
}

// kernelsOf returns the name of a software device's kernels, or "" for other devices.
func kernelsOf(dev npu.Device) string {
	if d, ok := dev.(*cpu.Device); ok {
		return d.Kernels()
	}
	return ""
}
