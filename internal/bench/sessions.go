package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/npukit/npukit/model"
)

// Together compares concurrent sessions with the same sessions run one by one.
type Together struct {
	Sessions      int     `json:"sessions"`
	OneTokensPerS float64 `json:"one_tokens_per_s"` // median over the sessions, each alone
	Times         float64 `json:"times_one_session"`
	SameText      bool    `json:"same_text"` // every session generated the same tokens as alone
}

// RunSessions measures n sessions that decode concurrently, each with its own text: first one by
// one, then all at once, b.Reps times. The result is their total speed.
func (b *Bench) RunSessions(ctx context.Context, t Test, n int) (Result, error) {
	r := b.result(fmt.Sprintf("%s x %d", t, n), t, n)
	r.Together = &Together{Sessions: n, SameText: true}
	if err := b.checkContext(t); err != nil {
		return r, err
	}
	g := b.newGroup(t, n)
	defer g.close()
	alone, rates := make([][]int32, n), make([]float64, n)
	for i := range n {
		var err error
		if alone[i], rates[i], err = b.runAlone(ctx, g, t, i); err != nil {
			return r, err
		}
	}
	texts := make([][]int32, n)
	for rep := range b.Reps + 1 { // repetition 0 is the warm-up
		what := fmt.Sprintf("%s, %d of %d", r.Name, rep, b.Reps)
		err := b.repeat(ctx, what, &r, rep > 0, func() (time.Duration, error) {
			return g.generateAll(ctx, t.Tokens, texts)
		})
		if err != nil {
			return r, err
		}
		r.Together.SameText = r.Together.SameText && slices.EqualFunc(texts, alone, slices.Equal[[]int32])
	}
	r.Together.OneTokensPerS = median(rates)
	r.Together.Times = median(r.Samples) / r.Together.OneTokensPerS
	return r, nil
}

// runAlone returns the text and the speed of session i while the others are idle.
func (b *Bench) runAlone(ctx context.Context, g *group, t Test, i int) (text []int32, rate float64, err error) {
	defer b.Progress(fmt.Sprintf("%s, session %d of %d alone", t, i+1, len(g.sessions)))()
	if _, err := g.generate(ctx, i, min(2, t.Tokens)); err != nil { // fills the context and warms up
		return nil, 0, err
	}
	began := time.Now()
	text, err = g.generate(ctx, i, t.Tokens)
	return text, float64(t.Tokens) / time.Since(began).Seconds(), err
}

// group is sessions of one model, each with its own prompt.
type group struct {
	sessions []*model.Session
	prompts  [][]int32
}

func (b *Bench) newGroup(t Test, n int) *group {
	g := &group{}
	rng := rand.New(rand.NewPCG(3, 4))
	vocab := int32(b.Model.Checkpoint().Config().Vocab)
	for range n {
		prompt := make([]int32, t.Depth+1)
		for i := range prompt {
			prompt[i] = rng.Int32N(vocab)
		}
		g.prompts = append(g.prompts, prompt)
		g.sessions = append(g.sessions, b.Model.NewSession())
	}
	return g
}

func (g *group) close() {
	for _, s := range g.sessions {
		s.Close()
	}
}

// generate decodes n tokens in session i.
func (g *group) generate(ctx context.Context, i, n int) (text []int32, err error) {
	for tok, err := range g.sessions[i].Generate(ctx, model.IDs(g.prompts[i]),
		&model.GenerateOptions{MaxTokens: n, IgnoreEOS: true, Sampling: &model.Sampling{}}) {
		if err != nil {
			return nil, err
		}
		text = append(text, tok.ID)
	}
	return text, nil
}

// generateAll decodes n tokens in every session concurrently, stores the texts, and returns the
// time.
func (g *group) generateAll(ctx context.Context, n int, texts [][]int32) (time.Duration, error) {
	errs := make([]error, len(texts))
	began := time.Now()
	var all sync.WaitGroup
	for i := range texts {
		all.Go(func() { texts[i], errs[i] = g.generate(ctx, i, n) })
	}
	all.Wait()
	return time.Since(began), errors.Join(errs...)
}
