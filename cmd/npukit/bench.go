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
	turn     time.Duration // how long a turn lasts at least
	next     *bufio.Reader // where turns are given, nil where nobody gives any
	meter    *cpu.Meter    // of the software device, nil with others
}

// maxSessions bounds --sessions: each has a cache of its own, and is measured alone before.
const maxSessions = 256

// benchResult is one test.
type benchResult struct {
	Model         string    `json:"model"`
	Test          string    `json:"test"` // "pp512", "tg64", "tg64@1024"
	Tokens        int       `json:"tokens"`
	Depth         int       `json:"depth"` // tokens in the context before
	TokensPerS    float64   `json:"tokens_per_s"`
	MinTokensPerS float64   `json:"min_tokens_per_s"`
	MaxTokensPerS float64   `json:"max_tokens_per_s"`
	Predicted     bool      `json:"predicted,omitempty"` // by the virtual device: nothing of it is measured
	Samples       []float64 `json:"samples"`             // tokens/s, in the order in which they were measured
	Repetitions   int       `json:"repetitions"`
	Device        string    `json:"device"`
	Kernels       string    `json:"kernels"`
	Threads       int       `json:"threads"`
	DType         string    `json:"dtype"` // of the weights in the file
	Activations   string    `json:"activations"`
	Parameters    int64     `json:"parameters"`
	Machine       string    `json:"machine"`
	// From the path to a model that can generate, the tokenizer included.
	LoadSeconds float64 `json:"load_s"`
	// Of the process, up to the end of all tests, mapped weights included, the meter's memory not;
	// 0 where the system does not say.
	PeakRSS        int64    `json:"peak_rss_bytes"`
	ReadBandwidth  float64  `json:"read_bandwidth_bytes_per_s"` // the median of those beside the samples
	PeakFLOPsPerS  float64  `json:"peak_flops_per_s"`           // of BF16 products, likewise
	Beside         []beside `json:"beside,omitempty"`           // what the machine could do beside each sample
	BytesPerToken  float64  `json:"bytes_per_token"`            // weights and KV cache that must be read
	StoredPerToken float64  `json:"stored_bytes_per_token"`     // the same for a program that compresses no weights
	// The median of the samples' shares of what is beside them.
	BandwidthShare float64 `json:"bandwidth_share"`
	// The paper's measure of use, beside the published Llama-3.2-1B on an NPU, with the true width
	// of q.
	Rho           float64 `json:"rho"`
	FLOPsPerToken float64 `json:"flops_per_token"`
	FLOPsPerS     float64 `json:"flops_per_s"`
	PeakShare     float64 `json:"peak_share"`

	Together *togetherResult `json:"together,omitempty"` // of several sessions at once: "tg64 x 8"
}

// perToken fills in what each of so many tokens costs.
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
			return usagef("--sessions takes numbers of sessions, 1 to %d, not %d", maxSessions, n)
		}
	}
	switch {
	case len(tests) == 0:
		return usagef("there is nothing to measure: --pp and --tg are both 0")
	case len(b.sessions) > 0 && !slices.ContainsFunc(tests, func(t benchTest) bool { return t.decode }):
		return usagef("--sessions are measured while they generate the tokens of --tg, which is 0")
	}
	dev, err := b.model.deviceFlags.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	software, _ := dev.(*cpu.Device)
	switch {
	case b.turns && (software == nil || len(b.sessions) > 0):
		return usagef("--turns measures one session on the cpu")
	case software != nil:
		// Its memory is there from the beginning, so that it can be taken off the most that the
		// process had.
		if b.meter, err = software.NewMeter(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.meter.Close()) }()
	case len(b.sessions) > 0:
		return usagef("--sessions measures, and the times of a virtual device are predictions of one session")
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
			err = fmt.Errorf("%s: the sessions do not give the texts that they give alone", r.Test)
		}
	}
	return err
}

// benchTest is one line of the table: a prompt of so many tokens, or so many tokens one by one,
// behind those that the context holds.
type benchTest struct {
	decode        bool
	tokens, depth int
}

// tests are the tests that the flags ask for, prompts first.
func (b *bencher) tests() (list []benchTest, err error) {
	for i, texts := range [][]string{b.pp, b.tg} {
		for _, text := range texts {
			tokens, depth, behind := strings.Cut(text, "@")
			t := benchTest{decode: i == 1}
			if t.tokens, err = strconv.Atoi(tokens); err == nil && behind {
				t.depth, err = strconv.Atoi(depth)
			}
			if err != nil || t.tokens < 0 || t.depth < 0 {
				return nil, usagef("--pp and --tg take numbers of tokens, 512 or 512@1024, not %q", text)
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

// measure generates after a prompt of random ids and adds the speeds of the repetitions to r. Every
// repetition has a prompt of its own behind the ids of the depth, so that the session keeps those
// in its cache and nothing else.
func (b *bencher) measure(ctx context.Context, m *opened, t benchTest, r *benchResult) error {
	if t.depth+t.tokens >= m.Context() {
		return fmt.Errorf("it needs %d positions, the context is %d", t.depth+t.tokens+1, m.Context())
	}
	prompt, generate := t.tokens, 1
	if t.decode { // after a prompt of one token there are n passes of one row: the last gives the n-th token
		prompt, generate = 1, t.tokens
	}
	ids := make([]int32, t.depth+prompt)
	rng := rand.New(rand.NewPCG(1, 2)) // any numbers, but the same every time
	vocab := int32(m.Checkpoint().Config().Vocab)
	fill := func(ids []int32) {
		for i := range ids {
			ids[i] = rng.Int32N(vocab)
		}
	}
	fill(ids[:t.depth])
	s := m.NewSession()
	defer s.Close()
	for i := range b.reps + 1 { // the first warms up: buffers grow, pages come in, the context is filled
		err := b.repeat(ctx, fmt.Sprintf("%s, %d of %d", t.name(), i, b.reps), r, i > 0, func() (time.Duration, error) {
			next := (ids[t.depth] + 1) % vocab // another one than in the repetition before
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

// fill works out the figures of a measured test.
func (r *benchResult) fill(peakRSS int64) {
	r.PeakRSS = peakRSS
	r.TokensPerS = median(r.Samples)
	r.MinTokensPerS, r.MaxTokensPerS = slices.Min(r.Samples), slices.Max(r.Samples)
	r.FLOPsPerS = r.FLOPsPerToken * r.TokensPerS
	if len(r.Beside) == 0 {
		return // npukit estimate has the rooflines of NPUs
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

// fillRho works out rho: of a prompt from an empty context, or of tokens, half of which are there
// on average. A prompt behind others has none.
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

// limitsBeside are all measurements of the machine.
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

// printPredicted prints a virtual device's figures.
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

// kernelsOf names the kernels of a software device.
func kernelsOf(dev npu.Device) string {
	if d, ok := dev.(*cpu.Device); ok {
		return d.Kernels()
	}
	return ""
}
