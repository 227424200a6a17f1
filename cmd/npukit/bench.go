package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
)

func (a *app) benchCommand() *cobra.Command {
	b := &bencher{app: a}
	cmd := &cobra.Command{
		Use:   "bench MODEL",
		Short: "Measure how fast a model runs",
		Long: `Bench measures tokens per second as llama-bench does: ppN is a prompt of N tokens from an empty context to the logits of its last one, tgN is N tokens
one after the other from an empty context. Each test runs once to warm up and then --reps times; figures are medians, with the slowest and
the fastest. Token ids are random, tokenizing and text do not count.

Beside the speed stands what a test must read and compute in a second at least, as a share of what this machine can, measured in the same run. Decoding
reads every weight for every token, so that memory is its limit; a long prompt's limit is arithmetic.`,
		Example: `  npukit bench SmolLM2-135M-Instruct-Q4_1
  npukit bench model.gguf --pp 128,512 --tg 64 --reps 10 --json`,
		Args: arguments("MODEL"),
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error { return b.run(ctx, args[0]) }),
	}
	b.model.add(cmd)
	flags := cmd.Flags()
	flags.IntSliceVar(&b.pp, "pp", []int{512}, "prompt lengths `N,...`; 0 for none")
	flags.IntSliceVar(&b.tg, "tg", []int{64}, "numbers of tokens to generate `N,...`; 0 for none")
	flags.IntVar(&b.reps, "reps", 5, "repetitions `N`")
	flags.BoolVar(&b.json, "json", false, "print a JSON list")
	return cmd
}

// bencher is one execution of `npukit bench`.
type bencher struct {
	app    *app
	model  modelFlags
	pp, tg []int
	reps   int
	json   bool
}

// benchResult is one test.
type benchResult struct {
	Model          string    `json:"model"`
	Test           string    `json:"test"` // "pp512", "tg64"
	TokensPerS     float64   `json:"tokens_per_s"`
	MinTokensPerS  float64   `json:"min_tokens_per_s"`
	MaxTokensPerS  float64   `json:"max_tokens_per_s"`
	Predicted      bool      `json:"predicted,omitempty"` // by the virtual device: nothing of it is measured
	Samples        []float64 `json:"samples"`             // tokens/s, in the order in which they were measured
	Repetitions    int       `json:"repetitions"`
	Device         string    `json:"device"`
	Kernels        string    `json:"kernels"`
	Threads        int       `json:"threads"`
	DType          string    `json:"dtype"` // of the weights in the file
	Activations    string    `json:"activations"`
	Parameters     int64     `json:"parameters"`
	Machine        string    `json:"machine"`
	ReadBandwidth  float64   `json:"read_bandwidth_bytes_per_s"`
	PeakFLOPsPerS  float64   `json:"peak_flops_per_s"` // of BF16 products
	BytesPerToken  float64   `json:"bytes_per_token"`  // weights and KV cache that must be read
	BandwidthShare float64   `json:"bandwidth_share"`
	Rho            float64   `json:"rho"` // the paper's measure of use, beside the published Llama-3.2-1B on an NPU, with the true width of q
	FLOPsPerToken  float64   `json:"flops_per_token"`
	FLOPsPerS      float64   `json:"flops_per_s"`
	PeakShare      float64   `json:"peak_share"`
}

func (b *bencher) run(ctx context.Context, arg string) (err error) {
	if b.reps < 1 {
		return usagef("--reps is %d, it must be positive", b.reps)
	}
	for _, n := range slices.Concat(b.pp, b.tg) {
		if n < 0 {
			return usagef("--pp and --tg take numbers of tokens, not %d", n)
		}
	}
	dev, err := b.model.deviceFlags.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	m, err := b.model.openOn(ctx, b.app, dev, arg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	software, _ := dev.(*cpu.Device) // nil on a virtual device, whose figures are predictions
	before, err := limitsOf(ctx, software)
	if err != nil {
		return err
	}
	c, plan, info := m.Checkpoint().Config(), m.Plan(), dev.Info()
	base := benchResult{
		Model: modelName(m.Checkpoint().Path()), Repetitions: b.reps, Device: info.Kind, Kernels: kernelsOf(dev), Threads: info.Threads,
		DType: c.DType.String(), Activations: plan.Activations.String(), Parameters: m.Checkpoint().Parameters(), Machine: processor(),
	}
	results := []benchResult{}
	test := func(name string, tokens, prompt, generate int, c cost) error {
		if tokens == 0 {
			return nil
		}
		r := base
		r.Test = fmt.Sprintf("%s%d", name, tokens)
		r.BytesPerToken, r.FLOPsPerToken = c.bytes/float64(tokens), c.flops/float64(tokens)
		r.Predicted = software == nil
		if r.Samples, err = b.measure(ctx, &opened{m, dev}, r.Test, prompt, generate, tokens); err != nil {
			return fmt.Errorf("%s: %w", r.Test, err)
		}
		results = append(results, r)
		return nil
	}
	for _, n := range b.pp {
		if err := test("pp", n, n, 1, prefillCost(plan, info, n)); err != nil {
			return err
		}
	}
	for _, n := range b.tg { // after a prompt of one token there are n passes of one row: the last gives the n-th token
		if err := test("tg", n, 1, n, decodeCost(plan, info, n)); err != nil {
			return err
		}
	}
	after, err := limitsOf(ctx, software)
	if err != nil {
		return err
	}
	base.ReadBandwidth, base.PeakFLOPsPerS = max(before.bytes, after.bytes), max(before.flops, after.flops) // others may have been at work once
	for i := range results {
		results[i].fill(base)
		if err := results[i].fillRho(plan); err != nil {
			return err
		}
	}
	if b.json {
		return writeJSON(b.app.out, results)
	}
	return b.print(base, results)
}

// limitsOf measures what the device can do in a second: bytes that it reads, operations of BF16 products.
func limitsOf(ctx context.Context, dev *cpu.Device) (limits cost, err error) {
	if dev == nil {
		return cost{}, nil
	}
	if limits.bytes, err = dev.ReadBandwidth(ctx); err != nil {
		return limits, err
	}
	limits.flops, err = dev.PeakFLOPS(ctx)
	return limits, err
}

// measure generates after a prompt of random ids and gives the speeds of the repetitions, where a repetition counts for so many tokens.
func (b *bencher) measure(ctx context.Context, m *opened, test string, prompt, generate, tokens int) ([]float64, error) {
	if tokens >= m.Context() {
		return nil, fmt.Errorf("it needs %d positions, the context is %d", tokens+1, m.Context())
	}
	ids := make([]int32, prompt)
	rng := rand.New(rand.NewPCG(1, 2)) // any numbers, but the same every time
	for i := range ids {
		ids[i] = rng.Int32N(int32(m.Checkpoint().Config().Vocab))
	}
	s := m.NewSession()
	defer s.Close()
	var samples []float64
	for i := range b.reps + 1 {
		if err := s.Forget(); err != nil {
			return nil, err
		}
		var stats model.Stats
		done := b.app.progress(fmt.Sprintf("%s, %d of %d", test, i, b.reps))
		for _, err := range s.Generate(ctx, model.IDs(ids), &model.GenerateOptions{MaxTokens: generate, IgnoreEOS: true, Sampling: &model.Sampling{}, Stats: &stats}) {
			if err != nil {
				done()
				return nil, err
			}
		}
		done()
		if i > 0 { // the first warms up: buffers grow, pages come in
			if p, ok := predictedBy(m.dev, stats); ok {
				stats = p
			}
			samples = append(samples, float64(tokens)/stats.Total.Seconds())
		}
	}
	return samples, nil
}

// fill works out the figures of a measured test, with the limits that base holds.
func (r *benchResult) fill(base benchResult) {
	r.ReadBandwidth, r.PeakFLOPsPerS = base.ReadBandwidth, base.PeakFLOPsPerS
	r.TokensPerS = median(r.Samples)
	r.MinTokensPerS, r.MaxTokensPerS = slices.Min(r.Samples), slices.Max(r.Samples)
	r.FLOPsPerS = r.FLOPsPerToken * r.TokensPerS
	if r.Predicted {
		return // npukit estimate has the rooflines
	}
	r.BandwidthShare = r.BytesPerToken * r.TokensPerS / r.ReadBandwidth
	r.PeakShare = r.FLOPsPerS / r.PeakFLOPsPerS
}

// fillRho works out rho: of the prompt, or of the tokens behind an empty context, half of which are there on average.
func (r *benchResult) fillRho(plan *model.Plan) error {
	kind, number := r.Test[:2], r.Test[2:]
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	if kind == "pp" {
		list, err := plan.Rho(n, float64(n)/r.TokensPerS, 1)
		if err == nil {
			r.Rho = list[len(list)-1].Prefill
		}
		return err
	}
	list, err := plan.Rho(max(1, n/2), 1, r.TokensPerS)
	if err == nil {
		r.Rho = list[len(list)-1].Decode
	}
	return err
}

func median(samples []float64) float64 {
	s := slices.Sorted(slices.Values(samples))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

func (b *bencher) print(base benchResult, results []benchResult) error {
	if base.Device == "sim" {
		return b.printPredicted(base, results)
	}
	_, err := fmt.Fprintf(b.app.out, "%s, %s, %s parameters\n%s, %s, kernels %s\nreads %s/s, computes %s (both measured now)\n\n",
		base.Model, base.DType, grouped(base.Parameters), base.Machine, count(base.Threads, "thread"), base.Kernels, size(base.ReadBandwidth),
		scaled(base.PeakFLOPsPerS, "FLOP/s"))
	if err != nil {
		return err
	}
	rows := [][]string{{"TEST", "TOKENS/S", "MIN", "MAX", "READS", "", "COMPUTES", "", "RHO"}}
	for _, r := range results {
		rows = append(rows, []string{r.Test, digits(r.TokensPerS), digits(r.MinTokensPerS), digits(r.MaxTokensPerS),
			size(r.BytesPerToken*r.TokensPerS) + "/s", fmt.Sprintf("%.0f %%", 100*r.BandwidthShare),
			scaled(r.FLOPsPerS, "FLOP/s"), fmt.Sprintf("%.0f %%", 100*r.PeakShare), fmt.Sprintf("%.3f", r.Rho)})
	}
	return table(b.app.out, "", rows)
}

// printPredicted prints a virtual device's figures.
func (b *bencher) printPredicted(base benchResult, results []benchResult) error {
	_, err := fmt.Fprintf(b.app.out, "%s, %s parameters, on a virtual XDNA 2: predicted, not measured (npukit estimate says where the time goes)\n\n", base.Model,
		grouped(base.Parameters))
	if err != nil {
		return err
	}
	rows := [][]string{{"TEST", "TOKENS/S", "RHO"}}
	for _, r := range results {
		rows = append(rows, []string{r.Test, digits(r.TokensPerS), fmt.Sprintf("%.3f", r.Rho)})
	}
	return table(b.app.out, "", rows)
}

// kernelsOf names the kernels of a software device.
func kernelsOf(dev npu.Device) string {
	if d, ok := dev.(*cpu.Device); ok {
		return d.Kernels()
	}
	return ""
}
