package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// GreedyReport is what [Greedy] and [GreedyTokens] found.
type GreedyReport struct {
	Name    string
	Reasons []Reason

	Wanted int     // tokens asked for
	Tokens []int32 // what both sides generated, up to the divergence
	K      int     // the rule's k

	Diverged  bool
	Got, Want int32 // the tokens at the divergence
	GotRank   int   // of the device's token among the reference's best, from 1; 0 when it is not among the best K, or when the reference is only tokens
	WantRank  int   // of the reference's token among the device's best, from 1; 0 when it is not among the best K
	OneWay    bool  // the reference is only tokens: the device's token could not be looked up there
	Stepped   bool  // the device went token by token, as decoding does; else its prefill was tested
}

// defaultTopK is the k of the two-way rule.
//
// Source: the verification of the paper's published code (top-5 sets, 32 greedy tokens).
const defaultTopK = 5

// Greedy lets both sides continue a prompt by their best token, n times, and looks at the first place where they differ: there each side's
// token must be among the other's best k (5 when k is 0). Beyond it the two see different texts, and nothing more can be compared. Two sides
// that are right differ only where the choice was nearly a tie; one that is wrong chooses what the other would never.
//
// Up to the divergence both generate the same, so that only one side has to generate: the other scores the result in one pass,
// teacher-forced, which shows the same first divergence. The side that generates is the device when it is a [Stepper], which then is tested
// as it decodes; else the reference when that is one; else the device, by scoring ever longer prefixes, whose cost grows with the square of
// n.
func Greedy(ctx context.Context, device, reference Scorer, prompt []int32, n, k int) (GreedyReport, error) {
	k, err := greedyArgs(prompt, n, k)
	if err != nil {
		return GreedyReport{}, err
	}
	if err := errors.Join(needScorer("device", device), needScorer("reference", reference)); err != nil {
		return GreedyReport{}, err
	}
	r := GreedyReport{Wanted: n, K: k}
	_, r.Stepped = device.(Stepper)
	_, refSteps := reference.(Stepper)
	var got, want choices
	if r.Stepped || !refSteps {
		if got, err = generate(ctx, device, prompt, n, k); err == nil {
			want, err = follow(ctx, reference, prompt, got.tokens(), k)
		}
	} else if want, err = generate(ctx, reference, prompt, n, k); err == nil {
		got, err = follow(ctx, device, prompt, want.tokens(), k)
	}
	if err != nil {
		return GreedyReport{}, err
	}
	if want.nonFinite > 0 {
		return GreedyReport{}, fmt.Errorf("gate: the reference has %d logits that are not finite", want.nonFinite)
	}
	r.judge(got, func(i int) (int32, []int) { return int32(want.top[i][0]), want.top[i] })
	return r, nil
}

// GreedyTokens is [Greedy] against tokens that someone stored, such as a golden file's. At the divergence the stored token must be among
// the device's best k; the other direction cannot be known. A device that is a [Stepper] is led along the stored tokens step by step,
// another one scores them in one pass.
func GreedyTokens(ctx context.Context, device Scorer, prompt, want []int32, k int) (GreedyReport, error) {
	k, err := greedyArgs(prompt, len(want), k)
	if err != nil {
		return GreedyReport{}, err
	}
	if err := needScorer("device", device); err != nil {
		return GreedyReport{}, err
	}
	r := GreedyReport{Wanted: len(want), K: k, OneWay: true}
	var got choices
	if s, ok := device.(Stepper); ok {
		r.Stepped = true
		got, err = step(ctx, s, prompt, want, len(want), k)
	} else {
		got, err = follow(ctx, device, prompt, want, k)
	}
	if err != nil {
		return GreedyReport{}, err
	}
	r.judge(got, func(i int) (int32, []int) { return want[i], nil })
	return r, nil
}

func greedyArgs(prompt []int32, n, k int) (int, error) {
	if err := needIDs(prompt, 1); err != nil {
		return 0, err
	}
	if k == 0 {
		k = defaultTopK
	}
	if n < 1 || k < 1 || k > 20 {
		return 0, badInput("n, k", "%d tokens by a top-%d rule: want at least one token, and k from 1 to 20", n, k)
	}
	return k, nil
}

// choices are the best k of each generated position.
type choices struct {
	top       [][]int
	nonFinite int
}

func (c *choices) add(logits []float32, k int) {
	for _, v := range logits {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			c.nonFinite++
		}
	}
	c.top = append(c.top, topK(logits, k))
}

func (c *choices) tokens() []int32 {
	list := make([]int32, len(c.top))
	for i, top := range c.top {
		list[i] = int32(top[0])
	}
	return list
}

// generate continues prompt by n tokens of s's own choice.
func generate(ctx context.Context, s Scorer, prompt []int32, n, k int) (choices, error) {
	if st, ok := s.(Stepper); ok {
		return step(ctx, st, prompt, nil, n, k)
	}
	var c choices
	ids := slices.Clone(prompt)
	for range n {
		last, err := follow(ctx, s, ids, []int32{0}, k)
		if err != nil {
			return c, err
		}
		c.top, c.nonFinite = append(c.top, last.top[0]), c.nonFinite+last.nonFinite
		ids = append(ids, int32(last.top[0][0]))
	}
	return c, nil
}

// step is generate, token by token. With forced tokens s follows those instead of its own.
func step(ctx context.Context, s Stepper, prompt, forced []int32, n, k int) (choices, error) {
	c, err := follow(ctx, s, prompt, []int32{0}, k)
	for i := 0; err == nil && i+1 < n; i++ {
		next := int32(c.top[i][0])
		if forced != nil {
			next = forced[i]
		}
		var logits []float32
		if logits, err = s.Step(ctx, next); err == nil && len(logits) == 0 {
			err = fmt.Errorf("gate: Step gave no logits")
		}
		if err == nil {
			c.add(logits, k)
		}
	}
	return c, err
}

// follow scores prompt and tokens in one pass and gives the choices that s would have made for each of the tokens.
func follow(ctx context.Context, s Scorer, prompt, tokens []int32, k int) (choices, error) {
	var c choices
	pos := 0
	for logits, err := range positions(ctx, s, slices.Concat(prompt, tokens[:len(tokens)-1])) {
		if err != nil {
			return c, err
		}
		if pos++; pos >= len(prompt) {
			c.add(logits, k)
		}
	}
	return c, nil
}

// judge finds the first divergence and applies the rule. Want gives the reference's token at a place, and its best k or nil.
func (r *GreedyReport) judge(got choices, want func(i int) (int32, []int)) {
	fail := func(metric, format string, args ...any) {
		r.Reasons = append(r.Reasons, Reason{metric, fmt.Sprintf(format, args...)})
	}
	if got.nonFinite > 0 {
		fail(NonFinite, "%d logits of the device are NaN or infinite", got.nonFinite)
	}
	for i, top := range got.top {
		token, best := want(i)
		if int32(top[0]) == token {
			r.Tokens = append(r.Tokens, token)
			continue
		}
		r.Diverged, r.Got, r.Want = true, int32(top[0]), token
		r.WantRank = 1 + slices.Index(top, int(token))
		if best != nil {
			if r.GotRank = 1 + slices.Index(best, top[0]); r.GotRank == 0 {
				fail(TwoWayTop, "token %d of the continuation is %d, and that is not among the reference's best %d, which begin with %d", i, r.Got, r.K, token)
			}
		}
		if r.WantRank == 0 {
			fail(TwoWayTop, "token %d of the continuation is %d for the reference, and that is not among the device's best %d, which begin with %d",
				i, token, r.K, r.Got)
		}
		return
	}
}

// OK reports whether the rule holds.
func (r GreedyReport) OK() bool { return len(r.Reasons) == 0 && r.Wanted > 0 }

// Err is nil when r is OK, and otherwise an error with the reasons that wraps [ErrFailed].
func (r GreedyReport) Err() error { return failure(r.Name, r.OK(), r.Reasons) }

// String is the report for people.
func (r GreedyReport) String() string {
	var b strings.Builder
	verdict(&b, r.Name, r.OK(), r.Reasons)
	if !r.Diverged {
		fmt.Fprintf(&b, "  all %d tokens are equal\n", r.Wanted)
		return b.String()
	}
	fmt.Fprintf(&b, "  the first %d of %d tokens are equal; then the device has %d and the reference %d\n", len(r.Tokens), r.Wanted, r.Got, r.Want)
	rank := func(n int) string {
		if n == 0 {
			return fmt.Sprintf("beyond the best %d", r.K)
		}
		return fmt.Sprintf("number %d", n)
	}
	if !r.OneWay {
		fmt.Fprintf(&b, "  the device's token is %s of the reference\n", rank(r.GotRank))
	}
	fmt.Fprintf(&b, "  the reference's token is %s of the device\n", rank(r.WantRank))
	return b.String()
}

// MarshalJSON writes the report for programs.
func (r GreedyReport) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Name     string   `json:"name,omitempty"`
		OK       bool     `json:"ok"`
		Reasons  []Reason `json:"reasons"`
		Wanted   int      `json:"wanted"`
		Tokens   []int32  `json:"tokens"`
		K        int      `json:"k"`
		Diverged bool     `json:"diverged"`
		Got      int32    `json:"got"`
		Want     int32    `json:"want"`
		GotRank  int      `json:"got_rank"`
		WantRank int      `json:"want_rank"`
		OneWay   bool     `json:"one_way"`
		Stepped  bool     `json:"stepped"`
	}{r.Name, r.OK(), append([]Reason{}, r.Reasons...), r.Wanted, append([]int32{}, r.Tokens...), r.K, r.Diverged, r.Got, r.Want, r.GotRank, r.WantRank,
		r.OneWay, r.Stepped})
}
