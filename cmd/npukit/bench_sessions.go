package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/npukit/npukit/internal/output"
	"github.com/npukit/npukit/internal/passcost"
	"github.com/npukit/npukit/model"
)

// togetherResult is the comparison of concurrent sessions with the same sessions run one by one.
type togetherResult struct {
	Sessions      int     `json:"sessions"`
	OneTokensPerS float64 `json:"one_tokens_per_s"` // median over the sessions, each alone
	Times         float64 `json:"times_one_session"`
	SameText      bool    `json:"same_text"` // every session generated the same tokens as alone
}

// together measures n sessions that decode concurrently, each with its own text: first one by one,
// then all at once, b.reps times. It adds their total speed to r.
func (b *bencher) together(ctx context.Context, m *opened, t benchTest, n int, r *benchResult) (err error) {
	r.Together = &togetherResult{Sessions: n, SameText: true}
	if t.depth+t.tokens >= m.Context() {
		return fmt.Errorf("the test needs %d positions, the context has %d", t.depth+t.tokens+1, m.Context())
	}
	rng := rand.New(rand.NewPCG(3, 4))
	prompts, sessions := make([][]int32, n), make([]*model.Session, n)
	for i := range n {
		sessions[i] = m.NewSession()
		defer sessions[i].Close()
		for range t.depth + 1 {
			prompts[i] = append(prompts[i], rng.Int32N(int32(m.Checkpoint().Config().Vocab)))
		}
	}
	speak := func(i, tokens int) (text []int32, err error) {
		for tok, err := range sessions[i].Generate(ctx, model.IDs(prompts[i]),
			&model.GenerateOptions{MaxTokens: tokens, IgnoreEOS: true, Sampling: &model.Sampling{}}) {
			if err != nil {
				return nil, err
			}
			text = append(text, tok.ID)
		}
		return text, nil
	}
	alone, rates := make([][]int32, n), make([]float64, n)
	for i := range n {
		done := b.app.progress(fmt.Sprintf("%s, session %d of %d alone", t.name(), i+1, n))
		if _, err = speak(i, min(2, t.tokens)); err == nil { // fills the context and warms up
			began := time.Now()
			alone[i], err = speak(i, t.tokens)
			rates[i] = float64(t.tokens) / time.Since(began).Seconds()
		}
		done()
		if err != nil {
			return err
		}
	}
	texts, errs := make([][]int32, n), make([]error, n)
	for rep := range b.reps + 1 { // repetition 0 is the warm-up
		err := b.repeat(ctx, fmt.Sprintf("%s x %d, %d of %d", t.name(), n, rep, b.reps), r, rep > 0,
			func() (time.Duration, error) {
				began := time.Now()
				var all sync.WaitGroup
				for i := range n {
					all.Go(func() { texts[i], errs[i] = speak(i, t.tokens) })
				}
				all.Wait()
				return time.Since(began), errors.Join(errs...)
			})
		if err != nil {
			return err
		}
		for i := range n {
			r.Together.SameText = r.Together.SameText && slices.Equal(texts[i], alone[i])
		}
	}
	r.Together.OneTokensPerS = median(rates)
	r.Together.Times = median(r.Samples) / r.Together.OneTokensPerS
	return nil
}

// togetherCost returns the cost of the same tokens in several sessions that share one read of the
// weights.
func togetherCost(one passcost.Cost, sessions int) passcost.Cost {
	n := float64(sessions)
	others := (n - 1) * one.Cache
	return passcost.Cost{Bytes: one.Bytes + others, Stored: one.Stored + others, Cache: n * one.Cache, FLOPs: n * one.FLOPs}
}

// printTogether prints the results of concurrent sessions.
func (b *bencher) printTogether(results []benchResult) error {
	if len(results) == 0 {
		return nil
	}
	rows := [][]string{{"TEST", "TOKENS/S", "MIN", "MAX", "ONE", "TIMES", "READS", "", "COMPUTES", "", "TEXT"}}
	for _, r := range results {
		text := "same as alone"
		if !r.Together.SameText {
			text = "DIFFERS"
		}
		rows = append(rows, []string{r.Test, output.Digits(r.TokensPerS), output.Digits(r.MinTokensPerS), output.Digits(r.MaxTokensPerS),
			output.Digits(r.Together.OneTokensPerS),
			fmt.Sprintf("%.2f", r.Together.Times), output.Size(r.BytesPerToken*r.TokensPerS) + "/s",
			fmt.Sprintf("%.0f %%", 100*r.BandwidthShare),
			output.Scaled(r.FLOPsPerS, "FLOP/s"), fmt.Sprintf("%.0f %%", 100*r.PeakShare), text})
	}
	if _, err := fmt.Fprintln(b.app.out); err != nil {
		return err
	}
	return output.Table(b.app.out, "", rows)
}
