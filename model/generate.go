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

// GenerateOptions are the options of a generation. Nil and the zero value of a field mean the
// default.
type GenerateOptions struct {
	MaxTokens int       // most tokens to generate; default: up to the end of the context
	Sampling  *Sampling // default: Model.DefaultSampling
	// Stop are strings that end the text, which does not include them. A string that is the text of
	// a special token, such as "<|im_end|>", with or without surrounding white space, stops at that
	// token. A special token within other text is an OptionError, because answers have no text for
	// it. If the model has no tokenizer, Stop is ErrNoTokenizer.
	Stop      []string
	StopIDs   []int32 // tokens that end the text, in addition to the model's own
	IgnoreEOS bool    // do not stop at EndTokens
	Logprobs  bool    // fill Token.Logprob
	TopTokens int     // number of alternatives in Token.Top, at most the vocabulary
	Stats     *Stats  // set when the generation ends, if not nil

	// ExactReuse recomputes the cached part of the prompt that differs in bits from the results of
	// a new session, for example the session's own answers: see [Session].
	ExactReuse bool
}

// Token is one generated token.
type Token struct {
	ID int32 `json:"id"`
	// Text is the text that this token adds to the answer; the answer is the concatenation of the
	// texts of all tokens. It may be empty if the token ends within a character, or if the text
	// could be the start of a stop string. It may be longer than the token if earlier text was held
	// back. It is always empty if the model has no tokenizer.
	Text string `json:"text"`
	// Logprob is the log probability under the model, before sampling settings apply. It is set
	// only with GenerateOptions.Logprobs or TopTokens. JSON omits 0, the log of certainty.
	Logprob float64       `json:"logprob,omitempty"`
	Top     []Alternative `json:"top,omitempty"` // most likely first; only with GenerateOptions.TopTokens
}

// DefaultSampling returns the sampling of generation_config.json. It is greedy if there is no such
// file or do_sample is not set; top-k, top-p and the rest are still set, for callers that set a
// temperature. If the file asks for sampling and leaves fields open, the defaults of transformers
// apply: temperature 1 and the 50 most likely tokens.
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
		s.TopP = max(*g.TopP, math.SmallestNonzeroFloat64) // 0 is greedy in transformers
	}
	if g.MinP != nil {
		s.MinP = *g.MinP
	}
	if g.RepetitionPenalty != nil {
		s.RepetitionPenalty = *g.RepetitionPenalty
	}
	return s
}

// Generate continues a prompt in a new session. See [Session.Generate].
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
	Logprobs []Token `json:"logprobs,omitempty"` // the same tokens; only with Logprobs or TopTokens
	Stats    Stats   `json:"stats"`
}

// Complete continues a prompt in a new session. See [Session.Complete].
func (m *Model) Complete(ctx context.Context, p Prompt, opts *GenerateOptions) (*Completion, error) {
	s := m.NewSession()
	c, err := s.Complete(ctx, p, opts)
	return c, errors.Join(err, s.Close())
}

// Complete runs [Session.Generate] and returns the whole answer. The Completion is never nil. If
// there is an error, for example because ctx is cancelled, it has the tokens before the error, and
// Stats.Reason is "error".
func (s *Session) Complete(ctx context.Context, p Prompt, opts *GenerateOptions) (*Completion, error) {
	c := &Completion{Tokens: []int32{}, Stats: Stats{Reason: StopError}} // an early error sets no Stats
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

// Chat answers a conversation: it is Generate with the model's chat template around the messages,
// as described at [Messages]. Both options may be nil. Pass the whole conversation each time; the
// session reuses the part that it has computed.
func (s *Session) Chat(ctx context.Context, messages []chat.Message, chatOpts *chat.Options,
	opts *GenerateOptions) iter.Seq2[Token, error] {
	return s.Generate(ctx, Messages(messages, chatOpts), opts)
}

// Generate continues a prompt and yields one token after another. The last one is the token that
// ends the text, such as EOS. Leaving the loop stops the generation.
//
// After an error nothing more is yielded. If ctx is cancelled, the error wraps ctx.Err() and comes
// within 100 ms, during device work, tokenization and template rendering alike; only a single
// template operation on many megabytes of text can take longer. The error does not wait for a pass
// that goes on because it has rows of other sessions. The session's next call, and [Session.Close],
// wait for the end of that pass, each under its own context.
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
			g.stats.Reason = StopError
		}
		if g.opts.Stats != nil {
			*g.opts.Stats = g.stats
		}
		if err != nil && !errors.Is(err, errBreak) {
			g.yield(Token{}, err)
		}
	}
}

// errBreak is the error of a generation whose caller left the loop.
var errBreak = errors.New("break")

// generation is the state of a call of Generate.
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
	// raw is the logits of the last token before sampling settings apply: the session's own until
	// its next pass, or a copy.
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
	g.sampler.record(ids...)
	g.stats.PromptTokens = len(ids)
	reused, err := g.s.startPrompt(g.ctx, ids, g.opts.ExactReuse, g.opts.MaxTokens)
	if err != nil {
		return err
	}
	g.stats.CachedTokens, g.stats.SharedTokens = reused.cached, reused.shared
	g.s.predicted = 0
	next := request{ids: ids[reused.cached+reused.shared:], large: reused.large}
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
		g.addLogprobs(&tok)
		done, err := g.emit(tok)
		if err != nil || done {
			return err
		}
		next = request{ids: []int32{tok.ID}, decoded: true}
	}
}

// validate returns an [*OptionError] if an option is invalid. Sampling has its own Validate.
func (o *GenerateOptions) validate(vocab int) error {
	if o.MaxTokens < 0 {
		return badOption("GenerateOptions.MaxTokens", o.MaxTokens, "0 (no limit) or more")
	}
	if o.TopTokens < 0 {
		return badOption("GenerateOptions.TopTokens", o.TopTokens, "0 or more")
	}
	for i, id := range o.StopIDs {
		if id < 0 || int(id) >= vocab {
			return badOption(fmt.Sprintf("GenerateOptions.StopIDs[%d]", i), id,
				fmt.Sprintf("an id from 0 to %d", vocab-1))
		}
	}
	return nil
}

// stops splits the stop conditions into ids and strings. The stream has no text for special tokens,
// so a string that is one becomes its id, and so does the text of an end token, which is never
// shown.
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
			return fmt.Errorf("model: GenerateOptions.Stop needs text: %w", m.tokErr)
		}
		id, ok, hidden := m.stopToken(text)
		switch {
		case ok:
			g.stopIDs[id] = true
			continue
		case hidden != "":
			return badOption(fmt.Sprintf("GenerateOptions.Stop[%d]", i), text,
				fmt.Sprintf("a text without %s, a special token that has no text in an answer; name it alone", hidden))
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
		raw = slices.Clone(logits) // the penalty changes logits in place
	}
	g.raw = raw
	id, err := g.sampler.next(logits)
	if err != nil {
		return Token{}, err
	}
	return Token{ID: id}, nil
}

// quickTokens bounds the number of alternatives that are found while the session holds the queue:
// up to this number they take no longer than the log probability itself, some milliseconds. More
// are found after the queue is released.
const quickTokens = 100

// addLogprobs sets the log probabilities that the options ask for.
func (g *generation) addLogprobs(tok *Token) {
	if g.opts.Logprobs || g.opts.TopTokens > 0 {
		tok.Logprob, tok.Top = logprobs(g.raw, tok.ID, g.opts.TopTokens)
	}
}

// emit adds the token's text and yields it. It reports whether the generation has ended.
func (g *generation) emit(tok Token) (done bool, err error) {
	m := g.s.m
	g.sampler.record(tok.ID)
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
			g.stats.Reason = StopBreak
		}
		return true, errBreak
	}
	return done, nil
}
