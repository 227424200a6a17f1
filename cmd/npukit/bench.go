package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/npukit/npukit/internal/localmodel"
	"github.com/npukit/npukit/internal/output"
	"github.com/npukit/npukit/internal/passcost"
	"github.com/npukit/npukit/internal/peakrss"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
)

func benchCommand(a *app) *cobra.Command {
	b := &bencher{app: a, model: modelFlags{apart: true}, turn: time.Second}
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
	app    *app
	model  modelFlags
	pp, tg []string
	reps   int
	json   bool

	sessions []int
	turns    bool
	turn     time.Duration // minimum length of a turn
	next     *bufio.Reader // stdin with --turns, else nil
	meter    *cpu.Meter    // nil unless the device is a cpu.Device
}

// maxSessions limits --sessions. Each session has a KV cache of its own and also runs alone.
const maxSessions = 256

// benchResult is the result of one test, as --json prints it.
type benchResult struct {
	Model         string    `json:"model"`
	Test          string    `json:"test"` // "pp512", "tg64", "tg64@1024"
	Tokens        int       `json:"tokens"`
	Depth         int       `json:"depth"` // tokens in the context before the test
	TokensPerS    float64   `json:"tokens_per_s"`
	MinTokensPerS float64   `json:"min_tokens_per_s"`
	MaxTokensPerS float64   `json:"max_tokens_per_s"`
	Predicted     bool      `json:"predicted,omitempty"` // by the virtual device, not measured
	Samples       []float64 `json:"samples"`             // tokens/s, in the order of the repetitions
	Repetitions   int       `json:"repetitions"`
	Device        string    `json:"device"`
	Kernels       string    `json:"kernels"`
	Threads       int       `json:"threads"`
	DType         string    `json:"dtype"` // of the weights in the file
	Activations   string    `json:"activations"`
	Parameters    int64     `json:"parameters"`
	Machine       string    `json:"machine"`
	// The time to open the model and its tokenizer.
	LoadSeconds float64 `json:"load_s"`
	// The peak RSS of the process over all tests, with mapped weights and without the meter's
	// buffers; 0 if the system does not report it.
	PeakRSS        int64    `json:"peak_rss_bytes"`
	ReadBandwidth  float64  `json:"read_bandwidth_bytes_per_s"` // median of Limits
	PeakFLOPsPerS  float64  `json:"peak_flops_per_s"`           // median of Limits, for BF16 products
	Beside         []beside `json:"beside,omitempty"`           // measured around each sample
	BytesPerToken  float64  `json:"bytes_per_token"`            // weights and KV cache that must be read
	StoredPerToken float64  `json:"stored_bytes_per_token"`     // the same without weight compression
	// The median over the samples of speed divided by the limits around the sample.
	BandwidthShare float64 `json:"bandwidth_share"`
	// Rho is the paper's measure of utilization. 1 is the published Llama-3.2-1B on an NPU, with
	// the true width of q.
	Rho           float64 `json:"rho"`
	FLOPsPerToken float64 `json:"flops_per_token"`
	FLOPsPerS     float64 `json:"flops_per_s"`
	PeakShare     float64 `json:"peak_share"`

	Together *togetherResult `json:"together,omitempty"` // only for concurrent sessions ("tg64 x 8")
}

// perToken sets the cost per token, if n tokens cost c.
func (r *benchResult) perToken(c passcost.Cost, tokens int) {
	n := float64(tokens)
	r.BytesPerToken, r.StoredPerToken, r.FLOPsPerToken = c.Bytes/n, c.Stored/n, c.FLOPs/n
}

func (b *bencher) run(ctx context.Context, arg string) (err error) {
	tests, err := b.tests()
	if err != nil {
		return err
	}
	for _, n := range b.sessions {
		if n < 1 || n > maxSessions {
			return usagef("--sessions is %d, want 1 to %d", maxSessions, n)
		}
	}
	switch {
	case len(tests) == 0:
		return usagef("nothing to measure: --pp and --tg are both 0")
	case len(b.sessions) > 0 && !slices.ContainsFunc(tests, func(t benchTest) bool { return t.decode }):
		return usagef("--sessions needs a --tg test: --tg is 0")
	}
	dev, err := b.model.deviceFlags.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	software, _ := dev.(*cpu.Device)
	switch {
	case b.turns && (software == nil || len(b.sessions) > 0):
		return usagef("--turns needs --device cpu and no --sessions")
	case software != nil:
		// The meter's buffers are allocated before anything else, so that they can be subtracted
		// from the peak RSS.
		if b.meter, err = software.NewMeter(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.meter.Close()) }()
	case len(b.sessions) > 0:
		return usagef("--sessions needs a device that is measured: a virtual device predicts the speed of " +
			"one session")
	}
	if b.turns {
		b.next = bufio.NewReader(b.app.in)
	}
	began := time.Now()
	m, err := b.model.openOn(ctx, b.app, dev, arg)
	if err != nil {
		return err
	}
	load := time.Since(began)
	defer func() { err = errors.Join(err, m.Close()) }()
	c, p, info := m.Checkpoint().Config(), m.Plan(), dev.Info()
	base := benchResult{
		Model: localmodel.Name(m.Checkpoint().Path()), Repetitions: b.reps, Device: info.Kind, Kernels: kernelsOf(dev),
		Threads: info.Threads,
		DType:   c.DType.String(), Activations: p.Activations.String(), Parameters: m.Checkpoint().Parameters(),
		Machine:     processor(),
		LoadSeconds: load.Seconds(),
	}
	results := []benchResult{}
	for _, t := range tests {
		r := base
		r.Test, r.Tokens, r.Depth, r.Predicted = t.name(), t.tokens, t.depth, info.Kind == "sim"
		c := passcost.Prefill(p, info, t.depth, t.tokens)
		if t.decode {
			c = passcost.Decode(p, info, t.depth, t.tokens)
		}
		r.perToken(c, t.tokens)
		if err = b.measure(ctx, &opened{Model: m, dev: dev}, t, &r); err != nil {
			return fmt.Errorf("%s: %w", r.Test, err)
		}
		results = append(results, r)
	}
	alone := len(results)
	for _, t := range tests {
		for _, n := range b.sessions {
			if !t.decode {
				continue
			}
			r := base
			r.Test, r.Tokens, r.Depth = fmt.Sprintf("%s x %d", t.name(), n), n*t.tokens, t.depth
			c := togetherCost(passcost.Decode(p, info, t.depth, t.tokens), n)
			r.perToken(c, r.Tokens)
			if err = b.together(ctx, &opened{Model: m, dev: dev}, t, n, &r); err != nil {
				return fmt.Errorf("%s: %w", r.Test, err)
			}
			results = append(results, r)
		}
	}
	if err := b.await("the end"); err != nil {
		return err
	}
	if most := peakrss.Bytes(); most > 0 {
		base.PeakRSS = most
		if b.meter != nil {
			base.PeakRSS = max(0, most-b.meter.Bytes())
		}
	}
	for i := range results {
		results[i].fill(base.PeakRSS)
		if i < alone {
			if err := results[i].fillRho(p); err != nil {
				return err
			}
		}
	}
	if b.json {
		err = output.JSON(b.app.out, results)
	} else if err = b.print(base, results[:alone], results[alone:]); err == nil {
		err = b.printTogether(results[alone:])
	}
	for _, r := range results[alone:] {
		if err == nil && !r.Together.SameText {
			err = fmt.Errorf("%s: concurrent sessions generate other texts than each session alone", r.Test)
		}
	}
	return err
}

// benchTest is one row of the table: a prefill of that many tokens, or that many decode steps,
// after depth tokens of context.
type benchTest struct {
	decode        bool
	tokens, depth int
}

// tests parses --pp and --tg. Prefill tests come first.
func (b *bencher) tests() (list []benchTest, err error) {
	for i, texts := range [][]string{b.pp, b.tg} {
		for _, text := range texts {
			tokens, depth, behind := strings.Cut(text, "@")
			t := benchTest{decode: i == 1}
			if t.tokens, err = strconv.Atoi(tokens); err == nil && behind {
				t.depth, err = strconv.Atoi(depth)
			}
			if err != nil || t.tokens < 0 || t.depth < 0 {
				return nil, usagef("--pp and --tg take token counts such as 512 or 512@1024, not %q", text)
			}
			if t.tokens > 0 {
				list = append(list, t)
			}
		}
	}
	return list, nil
}

func (t benchTest) name() string {
	name := "pp"
	if t.decode {
		name = "tg"
	}
	name += strconv.Itoa(t.tokens)
	if t.depth > 0 {
		name += "@" + strconv.Itoa(t.depth)
	}
	return name
}

// measure runs test t and adds the speed of each repetition to r. The prompt is random ids. Each
// repetition changes the ids after the first t.depth, so the session reuses exactly t.depth tokens
// of its KV cache.
func (b *bencher) measure(ctx context.Context, m *opened, t benchTest, r *benchResult) error {
	if t.depth+t.tokens >= m.Context() {
		return fmt.Errorf("the test needs %d positions, the context has %d", t.depth+t.tokens+1, m.Context())
	}
	prompt, generate := t.tokens, 1
	if t.decode { // a one-token prompt and n decode steps; the last step yields token n
		prompt, generate = 1, t.tokens
	}
	ids := make([]int32, t.depth+prompt)
	rng := rand.New(rand.NewPCG(1, 2)) // fixed seed, so that runs are comparable
	vocab := int32(m.Checkpoint().Config().Vocab)
	fill := func(ids []int32) {
		for i := range ids {
			ids[i] = rng.Int32N(vocab)
		}
	}
	fill(ids[:t.depth])
	s := m.NewSession()
	defer s.Close()
	for i := range b.reps + 1 { // repetition 0 is the warm-up and fills the context
		err := b.repeat(ctx, fmt.Sprintf("%s, %d of %d", t.name(), i, b.reps), r, i > 0, func() (time.Duration, error) {
			next := (ids[t.depth] + 1) % vocab // differs from the previous repetition
			fill(ids[t.depth:])
			ids[t.depth] = next
			if t.depth == 0 {
				if err := s.Forget(); err != nil {
					return 0, err
				}
			}
			var stats model.Stats
			for _, err := range s.Generate(ctx, model.IDs(ids), &model.GenerateOptions{MaxTokens: generate,
				IgnoreEOS: true, Sampling: &model.Sampling{}, Stats: &stats}) {
				if err != nil {
					return 0, err
				}
			}
			if p, ok := predictedBy(m.dev, stats); ok {
				stats = p
			}
			return stats.Total, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// fill computes the figures that follow from the samples.
func (r *benchResult) fill(peakRSS int64) {
	r.PeakRSS = peakRSS
	r.TokensPerS = median(r.Samples)
	r.MinTokensPerS, r.MaxTokensPerS = slices.Min(r.Samples), slices.Max(r.Samples)
	r.FLOPsPerS = r.FLOPsPerToken * r.TokensPerS
	if len(r.Beside) == 0 {
		return // NPU rooflines are in npukit estimate
	}
	var reads, peaks, readShares, peakShares []float64
	for i, each := range r.Beside {
		read, peak := each.mean()
		reads, peaks = append(reads, read), append(peaks, peak)
		readShares, peakShares = append(readShares, r.BytesPerToken*r.Samples[i]/read),
			append(peakShares, r.FLOPsPerToken*r.Samples[i]/peak)
	}
	r.ReadBandwidth, r.PeakFLOPsPerS = median(reads), median(peaks)
	r.BandwidthShare, r.PeakShare = median(readShares), median(peakShares)
}

// fillRho computes rho for a prompt in an empty context, or for decode at half of the generated
// tokens. A prompt at a depth has no rho.
func (r *benchResult) fillRho(p *plan.Plan) error {
	positions, ttft, speed := r.Depth+max(1, r.Tokens/2), 1.0, r.TokensPerS
	prompt := r.Test[:2] == "pp"
	if prompt {
		positions, ttft, speed = r.Tokens, float64(r.Tokens)/r.TokensPerS, 1
	}
	if prompt && r.Depth > 0 {
		return nil
	}
	list, err := p.Rho(positions, ttft, speed)
	if err != nil {
		return err
	}
	if r.Rho = list[len(list)-1].Decode; prompt {
		r.Rho = list[len(list)-1].Prefill
	}
	return nil
}

func median(samples []float64) float64 {
	s := slices.Sorted(slices.Values(samples))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

func (b *bencher) print(base benchResult, results, together []benchResult) error {
	if base.Device == "sim" {
		return b.printPredicted(base, results)
	}
	limits := ""
	if reads, peaks := limitsBeside(slices.Concat(results, together)); len(reads) > 0 {
		limits = fmt.Sprintf("reads %s/s to %s/s, computes %s to %s (measured beside every repetition)\n",
			output.Size(slices.Min(reads)), output.Size(slices.Max(reads)), output.Scaled(slices.Min(peaks), "FLOP/s"),
			output.Scaled(slices.Max(peaks), "FLOP/s"))
	}
	_, err := fmt.Fprintf(b.app.out, "%s, %s, %s parameters\n%s, %s, kernels %s\n%sopened in %.2f s, at most %s "+
		"of memory\n\n",
		base.Model, base.DType, output.Grouped(base.Parameters), base.Machine, output.Count(base.Threads, "thread"), base.Kernels,
		limits, base.LoadSeconds, output.Size(float64(base.PeakRSS)))
	if err != nil {
		return err
	}
	rows := [][]string{{"TEST", "TOKENS/S", "MIN", "MAX", "READS", "", "COMPUTES", "", "RHO"}}
	for _, r := range results {
		rows = append(rows, []string{r.Test, output.Digits(r.TokensPerS), output.Digits(r.MinTokensPerS), output.Digits(r.MaxTokensPerS),
			output.Size(r.BytesPerToken*r.TokensPerS) + "/s", fmt.Sprintf("%.0f %%", 100*r.BandwidthShare),
			output.Scaled(r.FLOPsPerS, "FLOP/s"), fmt.Sprintf("%.0f %%", 100*r.PeakShare), fmt.Sprintf("%.3f", r.Rho)})
	}
	return output.Table(b.app.out, "", rows)
}

// allLimits returns every measured bandwidth and arithmetic peak.
func limitsBeside(results []benchResult) (reads, peaks []float64) {
	for _, r := range results {
		for _, each := range r.Beside {
			for _, l := range []cpu.Limits{each.Before, each.Behind} {
				reads, peaks = append(reads, l.ReadBandwidth), append(peaks, l.PeakFLOPS)
			}
		}
	}
	return reads, peaks
}

// printPredicted prints the predictions of a virtual device.
func (b *bencher) printPredicted(base benchResult, results []benchResult) error {
	_, err := fmt.Fprintf(b.app.out, "%s, %s parameters, on a virtual XDNA 2: predicted, not measured (npukit "+
		"estimate says where the time goes)\n\n", base.Model,
		output.Grouped(base.Parameters))
	if err != nil {
		return err
	}
	rows := [][]string{{"TEST", "TOKENS/S", "RHO"}}
	for _, r := range results {
		rows = append(rows, []string{r.Test, output.Digits(r.TokensPerS), fmt.Sprintf("%.3f", r.Rho)})
	}
	return output.Table(b.app.out, "", rows)
}

// kernelsOf returns the name of a software device's kernels, or "" for other devices.
func kernelsOf(dev npu.Device) string {
	if d, ok := dev.(*cpu.Device); ok {
		return d.Kernels()
	}
	return ""
}
