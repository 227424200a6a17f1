package model

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/npukit/npukit/model/chat"
	"github.com/npukit/npukit/model/tokenizer"
)

// GenerateOptions say how to continue a prompt. A nil pointer and the zero value of a field mean the default.
type GenerateOptions struct {
	MaxTokens int       // tokens to generate at most; default: up to the end of the context
	Sampling  *Sampling // default: Model.DefaultSampling
	// Stop are strings that end the text. They are not part of it. A string that is the text of a
	// special token, such as "<|im_end|>", with or without white space around it, stops at that
	// token. A special token within other text is an OptionError, because answers have no text of
	// it. A model without a tokenizer has no text at all: ErrNoTokenizer.
	Stop      []string
	StopIDs   []int32 // tokens that end the text, in addition to the model's own
	IgnoreEOS bool    // go on after Model.EndTokens
	Logprobs  bool    // fill Token.Logprob
	TopTokens int     // fill Token.Top with so many alternatives, at most the whole vocabulary
	Stats     *Stats  // filled when the generation ends

	// ExactReuse computes again what the session holds of the prompt if a new session would compute
	// it to other bits, such as its own earlier answers: see [Session].
	ExactReuse bool
}

// Token is one generated token.
type Token struct {
	ID int32 `json:"id"`
	// Text is what this token adds to the text. It may be empty, when the token ends inside a character or what it adds could be the
	// beginning of a stop string, and it may be more than the token, when what was held back comes with it. The texts of all tokens
	// are the answer. It is always empty for a model without a tokenizer.
	Text string `json:"text"`
	// Logprob is the log of the model's probability, before sampling's settings; only with GenerateOptions.Logprobs. JSON
	// leaves out 0, the log of certainty.
	Logprob float64       `json:"logprob,omitempty"`
	Top     []Alternative `json:"top,omitempty"` // most likely tokens, best first; only with GenerateOptions.TopTokens
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
		s.TopP = max(*g.TopP, math.SmallestNonzeroFloat64) // transformers takes 0 as the most likely token alone
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

// Completion is a whole answer.
type Completion struct {
	Text     string  `json:"text"`
	Tokens   []int32 `json:"tokens"`             // ids, the end token included
	Logprobs []Token `json:"logprobs,omitempty"` // the same tokens; only with GenerateOptions.Logprobs or TopTokens
	Stats    Stats   `json:"stats"`
}

// Complete continues a prompt in a session of its own. See [Session.Complete].
func (m *Model) Complete(ctx context.Context, p Prompt, opts *GenerateOptions) (*Completion, error) {
	s := m.NewSession()
	c, err := s.Complete(ctx, p, opts)
	return c, errors.Join(err, s.Close())
}

// Complete is [Session.Generate] for callers that want the whole answer at once. The Completion is never nil: if there
// is an error, a cancelled context among them, it holds what was generated before, and Stats.Reason is [stopError].
func (s *Session) Complete(ctx context.Context, p Prompt, opts *GenerateOptions) (*Completion, error) {
	c := &Completion{Tokens: []int32{}, Stats: Stats{Reason: stopError}} // errors before the generation set no Stats
	var o GenerateOptions
	if opts != nil {
		o = *opts
	}
	stats := o.Stats
	o.Stats = &c.Stats
	var text strings.Builder
	var failed error
	for tok, err := range s.Generate(ctx, p, &o) {
		if err != nil {
			failed = err
			break
		}
		text.WriteString(tok.Text)
		c.Tokens = append(c.Tokens, tok.ID)
		if o.Logprobs || o.TopTokens > 0 {
			c.Logprobs = append(c.Logprobs, tok)
		}
	}
	c.Text = text.String()
	if stats != nil {
		*stats = c.Stats
	}
	return c, failed
}

// Chat answers a conversation: Generate with the model's chat template around the messages, as
// [Messages] describes. Both options may be nil. Pass the whole conversation each time; what the session
// has computed of it is not computed again.
func (s *Session) Chat(ctx context.Context, messages []chat.Message, chatOpts *chat.Options,
	opts *GenerateOptions) iter.Seq2[Token, error] {
	return s.Generate(ctx, Messages(messages, chatOpts), opts)
}

// Generate continues a prompt and yields token after token. A token that ends the text, such as EOS, is the last one yielded. After an error
// nothing more is yielded; when ctx is cancelled that is an error which wraps ctx.Err(), within 100 ms of any work on the device, in the tokeniser or in the
// template (a template's single operation on a text of many megabytes can take longer). The caller's loop has that error at once, also where a pass goes on because other sessions' rows are
// in it: what is asked of this session next waits for the end of that pass, under its own context, and [Session.Close] does. Leaving the loop stops the generation.
func (s *Session) Generate(ctx context.Context, p Prompt, opts *GenerateOptions) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		if err := s.acquire(); err != nil {
			yield(Token{}, err)
			return
		}
		defer s.release()
		g := &generation{s: s, ctx: ctx, started: time.Now(), yield: func(t Token, err error) bool {
			s.releaseHold()
			return yield(t, err)
		}}
		if opts != nil {
			g.opts = *opts
		}
		err := g.run(p)
		if err != nil && !errors.Is(err, errBreak) {
			g.stats.Reason = stopError
		}
		if g.opts.Stats != nil {
			*g.opts.Stats = g.stats
		}
		if err != nil && !errors.Is(err, errBreak) {
			g.yield(Token{}, err)
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
	stopIDs map[int32]bool // GenerateOptions.StopIDs, and the special tokens among Stop
	// raw are the logits of the last token as the model gave them: the session's own until its next pass, or a copy.
	raw   []float32
	stats Stats
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
	if err := g.opts.validate(m.plan.Model.Vocab); err != nil {
		return err
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
	if err := g.stops(); err != nil {
		return err
	}
	g.sampler.see(ids...)
	g.stats.PromptTokens = len(ids)
	reused, err := g.s.startPrompt(g.ctx, ids, g.opts.ExactReuse, g.opts.MaxTokens)
	if err != nil {
		return err
	}
	g.stats.CachedTokens, g.stats.SharedTokens = reused.cached, reused.shared
	g.s.predicted = 0
	next := request{ids: ids[reused.cached+reused.shared:], many: reused.many}
	for {
		var tok Token
		next.hold = true
		next.emit = func(_ int, logits []float32) (err error) {
			tok, err = g.choose(logits)
			return err
		}
		if err := g.s.compute(g.ctx, next); err != nil {
			return err
		}
		if g.opts.TopTokens > quickTokens {
			g.s.releaseHold()
		}
		g.look(&tok)
		done, err := g.emit(tok)
		if err != nil || done {
			return err
		}
		next = request{ids: []int32{tok.ID}, decoded: true}
	}
}

// validate returns an [*OptionError] if an option makes no sense for a vocabulary. Sampling has a Validate of its own.
func (o *GenerateOptions) validate(vocab int) error {
	if o.MaxTokens < 0 {
		return badOption("GenerateOptions.MaxTokens", o.MaxTokens, "0 (no limit) or more")
	}
	if o.TopTokens < 0 {
		return badOption("GenerateOptions.TopTokens", o.TopTokens, "0 or more")
	}
	for i, id := range o.StopIDs {
		if id < 0 || int(id) >= vocab {
			return badOption(fmt.Sprintf("GenerateOptions.StopIDs[%d]", i), id, fmt.Sprintf("an id from 0 to %d", vocab-1))
		}
	}
	return nil
}

// stops sorts what ends the text into ids and strings. The stream has no text of special tokens, so that a string that
// is one becomes its id, as does the text of an end token, whose text is never shown.
func (g *generation) stops() error {
	m := g.s.m
	g.stopIDs = map[int32]bool{}
	for _, id := range g.opts.StopIDs {
		g.stopIDs[id] = true
	}
	for i, text := range g.opts.Stop {
		if text == "" {
			continue
		}
		if m.tokErr != nil {
			return fmt.Errorf("model: GenerateOptions.Stop names strings, and tokens have no text: %w", m.tokErr)
		}
		if id, ok := tokenOf(m.tok, strings.TrimSpace(text)); ok && (m.ends[id] || !shows(m.tok, id)) {
			g.stopIDs[id] = true
			continue
		}
		if name, ok := hiddenToken(m.tok, text); ok {
			return badOption(fmt.Sprintf("GenerateOptions.Stop[%d]", i), text,
				fmt.Sprintf("a text without %s, a special token that has no text in an answer; name it alone", name))
		}
		g.stopper.stops = append(g.stopper.stops, text)
	}
	return nil
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
	asked := g.stopIDs[tok.ID]
	ended := asked || m.ends[tok.ID] && !g.opts.IgnoreEOS
	stopped := false
	if g.stream != nil && !ended {
		tok.Text, stopped = g.stopper.add(g.stream.Next(tok.ID))
	}
	switch {
	case asked:
		g.stats.Reason = StopString
	case ended:
		g.stats.Reason = StopEOS
	case stopped:
		g.stats.Reason = StopString
	case g.opts.MaxTokens > 0 && g.stats.Tokens >= g.opts.MaxTokens:
		g.stats.Reason = StopLength
	case len(g.s.seq.ids)+1 >= m.Context():
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
	if !g.yield(tok, nil) {
		if !done {
			g.stats.Reason = stopBreak
		}
		return true, errBreak
	}
	return done, nil
}
