package model

import (
	"encoding/json"
	"time"
)

// StopReason is the reason why a generation ended.
type StopReason string

const (
	StopEOS     StopReason = "eos"     // a token of EndTokens
	StopString  StopReason = "stop"    // GenerateOptions.Stop or StopIDs
	StopLength  StopReason = "length"  // MaxTokens
	StopContext StopReason = "context" // the end of the context
	StopBreak   StopReason = "break"   // the caller left the loop
	StopError   StopReason = "error"   // an error, such as that of a cancelled context
)

// Stats are the figures of one generation. In JSON times are seconds, and tokens_per_s is
// [Stats.TokensPerSecond].
type Stats struct {
	PromptTokens int           // prompt_tokens: tokens of the prompt
	CachedTokens int           // cached_tokens: of those, tokens in the session's own cache
	SharedTokens int           // shared_tokens: of those, tokens copied from other sessions
	Tokens       int           // generated_tokens: tokens generated, the end token included
	Reason       StopReason    // stop_reason
	Seed         uint64        // seed: reproduces the text
	TTFT         time.Duration // ttft_s: from the call to the first token
	Total        time.Duration // total_s: from the call to the last token

	predictedTTFT, predictedTotal time.Duration // from the plan's costs
}

// statsJSON is the JSON form of Stats.
type statsJSON struct {
	PromptTokens int        `json:"prompt_tokens"`
	CachedTokens int        `json:"cached_tokens"`
	SharedTokens int        `json:"shared_tokens"`
	Tokens       int        `json:"generated_tokens"`
	Reason       StopReason `json:"stop_reason"`
	Seed         uint64     `json:"seed"`
	TTFT         float64    `json:"ttft_s"`
	Total        float64    `json:"total_s"`
	TokensPerS   float64    `json:"tokens_per_s"`
}

// MarshalJSON implements [json.Marshaler].
func (s Stats) MarshalJSON() ([]byte, error) {
	return json.Marshal(statsJSON{s.PromptTokens, s.CachedTokens, s.SharedTokens, s.Tokens, s.Reason, s.Seed,
		s.TTFT.Seconds(), s.Total.Seconds(), s.TokensPerSecond()})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (s *Stats) UnmarshalJSON(data []byte) error {
	var j statsJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	duration := func(seconds float64) time.Duration { return time.Duration(seconds*float64(time.Second) + 0.5) }
	*s = Stats{PromptTokens: j.PromptTokens, CachedTokens: j.CachedTokens,
		SharedTokens: j.SharedTokens, Tokens: j.Tokens,
		Reason: j.Reason, Seed: j.Seed, TTFT: duration(j.TTFT), Total: duration(j.Total)}
	return nil
}

// Predicted returns s with the times that the plan's clock predicts for an NPU in place of those
// measured here. It reports false if the plan has no costs.
func (s Stats) Predicted() (Stats, bool) {
	if s.predictedTTFT == 0 {
		return s, false
	}
	s.TTFT, s.Total = s.predictedTTFT, s.predictedTotal
	return s, true
}

// TokensPerSecond returns the decoding speed, (Tokens-1) / (Total-TTFT), since prefill makes the
// first token. It is 0 for less than two tokens.
func (s Stats) TokensPerSecond() float64 {
	if s.Tokens < 2 || s.Total <= s.TTFT {
		return 0
	}
	return float64(s.Tokens-1) / (s.Total - s.TTFT).Seconds()
}
