package model

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/npukit/npukit/model/chat"
	"github.com/npukit/npukit/model/tokenizer"
)

// GenerateOptions say how to continue a prompt. A nil pointer and the zero value of a field mean the default.
type GenerateOptions struct {
	MaxTokens int       // tokens to generate at most; default: up to the end of the context
	Sampling  *Sampling // default: Model.DefaultSampling
	Stop      []string  // strings that end the text; they are not part of it. A model without a tokenizer has no text: ErrNoTokenizer
	StopIDs   []int32   // tokens that end it, beside the model's own
	IgnoreEOS bool      // go on after the model's own end tokens
	Logprobs  bool      // fill Token.Logprob
	TopTokens int       // fill Token.Top with so many alternatives, at most the whole vocabulary
	Stats     *Stats    // filled when the generation ends
}

// Token is one generated token.
type Token struct {
	ID int32
	// Text is what this token adds to the text. It may be empty, when the token ends inside a character or what it adds could be the
	// beginning of a stop string, and it may be more than the token, when what was held back comes with it. The texts of all tokens
	// are the answer. It is always empty for a model without a tokenizer.
	Text    string
	Logprob float64       // log of the model's probability, before sampling's settings; only with GenerateOptions.Logprobs
	Top     []Alternative // the most likely tokens, most likely first; only with GenerateOptions.TopTokens
}

// StopReason says why a generation ended.
type StopReason string

const (
	StopEOS     StopReason = "eos"     // an end token
	StopString  StopReason = "stop"    // a stop string
	StopLength  StopReason = "length"  // MaxTokens
	StopContext StopReason = "context" // no position left
	StopBreak   StopReason = "break"   // the caller left the loop
	StopError   StopReason = "error"   // an error, a cancelled context among them
)

// Stats are the figures of one generation.
type Stats struct {
	PromptTokens int // tokens of the prompt
	CachedTokens int // of those, how many the session had computed before
	SharedTokens int // of those, how many other sessions had computed, whose keys and values were copied
	Tokens       int // tokens generated
	Reason       StopReason
	Seed         uint64        // of the sampling, to generate the same again
	TTFT         time.Duration // from the call to the first token
	Total        time.Duration // from the call to the last token

	predictedTTFT, predictedTotal time.Duration // by the plan's costs
}

// Predicted is s with the times that the plan's clock predicts for an NPU in place of those that passed here: what a virtual device is asked for. It reports false for a
// plan without costs.
func (s Stats) Predicted() (Stats, bool) {
	if s.predictedTTFT == 0 {
		return s, false
	}
	s.TTFT, s.Total = s.predictedTTFT, s.predictedTotal
	return s, true
}

// TokensPerSecond is the speed of decoding: the first token is the prefill's, so (Tokens-1) / (Total-TTFT); 0 with less than two tokens.
func (s Stats) TokensPerSecond() float64 {
	if s.Tokens < 2 || s.Total <= s.TTFT {
		return 0
	}
	return float64(s.Tokens-1) / (s.Total - s.TTFT).Seconds()
}

// DefaultSampling is the sampling that generation_config.json asks for, or greedy where there is none or do_sample is not set. Top-k, top-p and the rest are kept
// for callers who set a temperature. Where the file asks for sampling and leaves things open, transformers' defaults hold: a temperature of 1 and
// the 50 most likely tokens.
func (m *Model) DefaultSampling() Sampling {
	g := m.ck.Generation()
	var s Sampling
	if g == nil {
		return s
	}
	if g.DoSample != nil && *g.DoSample {
		s.Temperature, s.TopK = 1, 50
		if g.Temperature != nil {
			s.Temperature = *g.Temperature
		}
	}
	if g.TopK != nil {
		s.TopK = *g.TopK
	}
	if g.TopP != nil {
		s.TopP = *g.TopP
	}
	if g.MinP != nil {
		s.MinP = *g.MinP
	}
	if g.RepetitionPenalty != nil {
		s.RepetitionPenalty = *g.RepetitionPenalty
	}
	return s
}

// Generate continues a prompt in a session of its own. See [Session.Generate].
func (m *Model) Generate(ctx context.Context, p Prompt, opts *GenerateOptions) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		s := m.NewSession()
		defer s.Close()
		s.Generate(ctx, p, opts)(yield)
	}
}

// Chat answers a conversation: Generate with the model's chat template around the messages. Pass the whole conversation each time; what the session
// has computed of it is not computed again.
func (s *Session) Chat(ctx context.Context, messages []chat.Message, opts *GenerateOptions) iter.Seq2[Token, error] {
	return s.Generate(ctx, Messages(messages, nil), opts)
}

// Generate continues a prompt and yields token after token. A token that ends the text, such as EOS, is the last one yielded. After an error
// nothing more is yielded; when ctx is cancelled that is an error which wraps ctx.Err(), within 100 ms of any work on the device, in the tokeniser or in the
// template (a template's single operation on a text of many megabytes can take longer). The caller's loop has that error at once, also where a pass goes on because other sessions' rows are
// in it: what is asked of this session next waits for the end of that pass, under its own context, and [Session.Close] does. Leaving the loop stops the generation.
func (s *Session) Generate(ctx context.Context, p Prompt, opts *GenerateOptions) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		if err := s.enter(); err != nil {
			yield(Token{}, err)
			return
		}
		defer s.busy.Unlock()
		g := &generation{s: s, ctx: ctx, started: time.Now(), yield: yield}
		if opts != nil {
			g.opts = *opts
		}
		err := g.run(p)
		if err != nil && !errors.Is(err, errBreak) {
			g.stats.Reason = StopError
		}
		if g.opts.Stats != nil {
			*g.opts.Stats = g.stats
		}
		if err != nil && !errors.Is(err, errBreak) {
			yield(Token{}, err)
		}
	}
}

// errBreak ends a generation whose caller has left the loop.
var errBreak = errors.New("break")

// generation is one call of Generate.
type generation struct {
	s       *Session
	ctx     context.Context
	opts    GenerateOptions
	started time.Time
	yield   func(Token, error) bool

	sampler *sampler
	stream  *tokenizer.Stream
	stopper stopper
	raw     []float32 // logits of the last token as the model gave them; the session's own until its next pass, or a copy
	stats   Stats
}

func (g *generation) run(p Prompt) error {
	m := g.s.m
	sampling := m.DefaultSampling()
	if g.opts.Sampling != nil {
		sampling = *g.opts.Sampling
	}
	if err := sampling.Validate(); err != nil {
		return err
	}
	if g.opts.MaxTokens < 0 || g.opts.TopTokens < 0 {
		return fmt.Errorf("model: MaxTokens is %d and TopTokens %d, want 0 or more", g.opts.MaxTokens, g.opts.TopTokens)
	}
	vocab := m.plan.Model.Vocab
	for _, id := range g.opts.StopIDs {
		if id < 0 || int(id) >= vocab {
			return fmt.Errorf("model: StopIDs has %d, the vocabulary has %d", id, vocab)
		}
	}
	g.sampler = newSampler(sampling)
	g.stats.Seed = g.sampler.Seed
	if err := g.ctx.Err(); err != nil {
		return err
	}
	encoding := time.Now()
	ids, err := m.tokens(g.ctx, p)
	if err != nil {
		return err
	}
	spanHost(g.ctx, "tokenize", encoding)
	if m.tok != nil {
		g.stream = m.tok.Stream()
	}
	g.stopper.stops = slices.DeleteFunc(slices.Clone(g.opts.Stop), func(s string) bool { return s == "" })
	if len(g.stopper.stops) > 0 && m.tokErr != nil {
		return fmt.Errorf("model: GenerateOptions.Stop names strings, and tokens have no text: %w", m.tokErr)
	}
	g.sampler.see(ids...)
	g.stats.PromptTokens = len(ids)
	if err := g.s.land(g.ctx); err != nil {
		return err
	}
	g.stats.CachedTokens = g.s.keep(ids)
	if err := g.s.expect(g.ctx, len(ids), g.opts.MaxTokens); err != nil {
		return err
	}
	if g.stats.SharedTokens, err = g.s.share(g.ctx, ids); err != nil {
		return err
	}
	next := ids[g.stats.CachedTokens+g.stats.SharedTokens:]
	g.s.predicted = 0
	defer g.s.away()
	for {
		var tok Token
		err := g.s.feed(g.ctx, next, false, func(_ int, logits []float32) (err error) {
			tok, err = g.choose(logits)
			return err
		})
		if err != nil {
			return err
		}
		if g.opts.TopTokens > quickTokens {
			g.s.away()
		}
		g.look(&tok)
		done, err := g.emit(tok)
		if err != nil || done {
			return err
		}
		next = []int32{tok.ID}
	}
}

// choose samples the next token.
func (g *generation) choose(logits []float32) (Token, error) {
	defer spanHost(g.ctx, "sample", time.Now())
	raw := logits
	if (g.opts.Logprobs || g.opts.TopTokens > 0) && g.sampler.RepetitionPenalty != 0 {
		raw = slices.Clone(logits) // the penalty changes them
	}
	g.raw = raw
	id, err := g.sampler.next(logits)
	if err != nil {
		return Token{}, err
	}
	return Token{ID: id}, nil
}

// quickTokens is how many alternatives are found while sessions of the same pass wait for this one, to go on together: so many take no longer than the probability
// itself, some milliseconds. More are found while others go on.
const quickTokens = 100

// look fills in what was asked for beside the token.
func (g *generation) look(tok *Token) {
	if g.opts.Logprobs || g.opts.TopTokens > 0 {
		tok.Logprob, tok.Top = logprobs(g.raw, tok.ID, g.opts.TopTokens)
	}
}

// emit adds the token's text and yields it. It reports whether the generation is over.
func (g *generation) emit(tok Token) (done bool, err error) {
	m := g.s.m
	g.sampler.see(tok.ID)
	g.stats.Tokens++
	g.stats.Total = time.Since(g.started)
	g.stats.predictedTotal = time.Duration(g.s.predicted * float64(time.Second))
	if g.stats.Tokens == 1 {
		g.stats.TTFT, g.stats.predictedTTFT = g.stats.Total, g.stats.predictedTotal
	}
	ended := m.stop[tok.ID] && !g.opts.IgnoreEOS || slices.Contains(g.opts.StopIDs, tok.ID)
	stopped := false
	if g.stream != nil && !ended {
		tok.Text, stopped = g.stopper.add(g.stream.Next(tok.ID))
	}
	switch {
	case ended:
		g.stats.Reason = StopEOS
	case stopped:
		g.stats.Reason = StopString
	case g.opts.MaxTokens > 0 && g.stats.Tokens >= g.opts.MaxTokens:
		g.stats.Reason = StopLength
	case len(g.s.memory.ids)+1 >= m.Context():
		g.stats.Reason = StopContext
	}
	if g.stats.Reason != "" && !stopped && g.stream != nil {
		rest, again := g.stopper.add(g.stream.Flush())
		tok.Text += rest
		if again {
			g.stats.Reason = StopString
		} else {
			tok.Text += g.stopper.rest()
		}
	}
	done = g.stats.Reason != ""
	g.s.away()
	if !g.yield(tok, nil) {
		if !done {
			g.stats.Reason = StopBreak
		}
		return true, errBreak
	}
	return done, nil
}
