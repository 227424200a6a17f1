package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/spf13/cobra"

	"github.com/npukit/npukit/model"
)

func (a *app) benchCommand() *cobra.Command {
	b := &bencher{app: a}
	cmd := &cobra.Command{
		Use:   "bench MODEL",
		Short: "Measure how fast a model runs",
		Long: `Bench measures tokens per second as llama-bench does: ppN is a prompt of N tokens from an empty context to the logits of its last one, tgN is N tokens
one after the other from an empty context. Each test runs once to warm up and then --reps times; figures are medians, with the slowest and
the fastest. Token ids are random, tokenizing and text do not count.

Beside the speed stands how fast this machine reads memory, measured in the same run: decoding reads every weight for every token, so the share of the
bandwidth that it uses says how much there is left to gain.`,
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
	Samples        []float64 `json:"samples"` // tokens/s, in the order in which they were measured
	Repetitions    int       `json:"repetitions"`
	Device         string    `json:"device"`
	Kernels        string    `json:"kernels"`
	Threads        int       `json:"threads"`
	DType          string    `json:"dtype"` // of the weights in the file
	Activations    string    `json:"activations"`
	Parameters     int64     `json:"parameters"`
	Machine        string    `json:"machine"`
	ReadBandwidth  float64   `json:"read_bandwidth_bytes_per_s"`
	BytesPerToken  float64   `json:"bytes_per_token"` // weights and KV cache that must be read
	BandwidthShare float64   `json:"bandwidth_share"`
	FLOPsPerToken  float64   `json:"flops_per_token"`
	FLOPsPerS      float64   `json:"flops_per_s"`
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
	bandwidth, err := dev.ReadBandwidth(ctx)
	if err != nil {
		return err
	}
	c, plan := m.Checkpoint().Config(), m.Plan()
	base := benchResult{
		Model: c.Name, Repetitions: b.reps, Device: dev.Info().Kind, Kernels: dev.Kernels(), Threads: dev.Info().Threads, DType: c.DType.String(),
		Activations: plan.Activations.String(), Parameters: m.Checkpoint().Parameters(), Machine: processor(), ReadBandwidth: bandwidth,
	}
	results := []benchResult{}
	for _, kind := range []struct {
		name    string
		lengths []int
		prompt  func(n int) int // tokens of the prompt; all are generated after one pass that takes it
		cost    func(n int) cost
	}{
		{"pp", b.pp, func(n int) int { return n }, func(n int) cost { return prefillCost(plan, dev.Info(), n) }},
		{"tg", b.tg, func(int) int { return 1 }, func(n int) cost { return decodeCost(plan, dev.Info(), n) }},
	} {
		for _, n := range kind.lengths {
			if n == 0 {
				continue
			}
			r := base
			r.Test = fmt.Sprintf("%s%d", kind.name, n)
			prompt := kind.prompt(n)
			if r.Samples, err = b.measure(ctx, m, r.Test, prompt, n-prompt+1, n); err != nil {
				return fmt.Errorf("%s: %w", r.Test, err)
			}
			r.fill(kind.cost(n), float64(n))
			results = append(results, r)
		}
	}
	if b.json {
		return writeJSON(b.app.out, results)
	}
	return b.print(base, results)
}

// measure generates after a prompt of random ids and gives the speeds of the repetitions, where a repetition counts for so many tokens.
// With n tokens to come after a single one there are n passes of one row: the first is fed the prompt, the last gives the n-th token.
func (b *bencher) measure(ctx context.Context, m *model.Model, test string, prompt, generate, tokens int) ([]float64, error) {
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
			samples = append(samples, float64(tokens)/stats.Total.Seconds())
		}
	}
	return samples, nil
}

func (r *benchResult) fill(c cost, tokens float64) {
	r.TokensPerS = median(r.Samples)
	r.MinTokensPerS, r.MaxTokensPerS = slices.Min(r.Samples), slices.Max(r.Samples)
	r.BytesPerToken, r.FLOPsPerToken = c.bytes/tokens, c.flops/tokens
	r.FLOPsPerS = r.FLOPsPerToken * r.TokensPerS
	r.BandwidthShare = r.BytesPerToken * r.TokensPerS / r.ReadBandwidth
}

func median(samples []float64) float64 {
	s := slices.Sorted(slices.Values(samples))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

func (b *bencher) print(base benchResult, results []benchResult) error {
	_, err := fmt.Fprintf(b.app.out, "%s, %s, %s parameters\n%s, %s, kernels %s, reads %s/s\n\n", base.Model, base.DType, grouped(base.Parameters),
		base.Machine, count(base.Threads, "thread"), base.Kernels, size(base.ReadBandwidth))
	if err != nil {
		return err
	}
	rows := [][]string{{"TEST", "TOKENS/S", "MIN", "MAX", "COMPUTES", "READS", "OF BANDWIDTH"}}
	for _, r := range results {
		rows = append(rows, []string{r.Test, digits(r.TokensPerS), digits(r.MinTokensPerS), digits(r.MaxTokensPerS), scaled(r.FLOPsPerS, "FLOP/s"),
			size(r.BytesPerToken*r.TokensPerS) + "/s", fmt.Sprintf("%.0f %%", 100*r.BandwidthShare)})
	}
	return table(b.app.out, "", rows)
}
