package model

import (
	"slices"
	"strings"

	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/tokenizer"
)

// EndToken is a token that ends an answer.
type EndToken struct {
	ID   int32  `json:"id"`
	Text string `json:"text"` // empty without a tokenizer
	// Origins are the files or GGUF metadata keys that name the token, such as
	// "generation_config.json", or "token text" if it is known by its text.
	Origins []string `json:"origins"`
}

// originText is the origin of an end token that is known by its text.
const originText = "token text"

// endTexts are control tokens that end an answer in every model whose tokenizer has them.
// Conversions and fine-tunes often name another end token, or none, although the model still
// generates these.
var endTexts = []string{
	"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", // Llama 3; the last Granite too
	"<|eot|>", "<|eom|>", // Llama 4
	"<|im_end|>", "<|endoftext|>", // ChatML, Qwen, SmolLM; GPT-2
	"<end_of_turn>", "<eos>", // Gemma
	"<|end|>",                // Phi-3
	"<|return|>", "<|call|>", // gpt-oss
	"</s>",                              // SentencePiece
	"<｜end▁of▁sentence｜>",               // DeepSeek
	"<|END_OF_TURN_TOKEN|>",             // Command R
	"[|endofturn|]",                     // EXAONE
	"[EOT]", "[EOS]", "<EOT>", "_<EOT>", // Kimi K2, Refact, Code Llama
	"<end_of_utterance>", // SmolVLM
}

// EndTokens returns the tokens that end an answer of a checkpoint: the ids in
// generation_config.json, config.json and GGUF metadata, the eos_token of tokenizer_config.json,
// and well-known control tokens of the tokenizer, such as <|eot_id|>. tok may be nil.
func EndTokens(ck *checkpoint.Checkpoint, tok tokenizer.Tokenizer) []EndToken {
	var ends []EndToken
	add := func(id int32, origins ...string) {
		i := slices.IndexFunc(ends, func(e EndToken) bool { return e.ID == id })
		if i < 0 {
			i = len(ends)
			ends = append(ends, EndToken{ID: id})
		}
		ends[i].Origins = append(ends[i].Origins, origins...)
	}
	if ck == nil {
		return nil
	}
	for _, e := range ck.Text().Ends {
		add(int32(e.ID), e.Origins...)
	}
	if tok == nil {
		return ends
	}
	find := func(text, origin string) {
		if id, ok := tokenOf(tok, text); ok && int(id) < ck.Config().Vocab {
			add(id, origin)
		}
	}
	if eos := ck.Text().EOS; eos != "" && ck.Format() != "gguf" { // GGUF names it by id
		find(eos, "tokenizer_config.json")
	}
	_, harmony := tokenOf(tok, "<|return|>")
	for _, text := range endTexts {
		if harmony && text == "<|end|>" {
			continue // in gpt-oss's format it ends a message, after which the answer goes on
		}
		find(text, originText)
	}
	for i := range ends {
		ends[i].Text, _ = tok.Token(ends[i].ID)
	}
	return ends
}

// tokenOf returns the added token whose text is text, if there is one. Pre-tokenization splits the
// text before it could match another entry of the vocabulary.
func tokenOf(tok tokenizer.Tokenizer, text string) (int32, bool) {
	ids, err := tok.Encode(text, &tokenizer.EncodeOptions{NoSpecial: true})
	if err != nil || len(ids) != 1 {
		return 0, false
	}
	own, ok := tok.Token(ids[0])
	return ids[0], ok && own == text
}

// stopToken returns the token that ends an answer at the stop string text: an added token that text is,
// but for white space around it, if it is an end token or answers show no text of it. If text only
// contains a token of which answers show nothing, hidden is that token's text.
func (m *Model) stopToken(text string) (id int32, ok bool, hidden string) {
	text = strings.TrimSpace(text)
	if id, ok := tokenOf(m.tok, text); ok {
		return id, m.ends[id] || !shows(m.tok, id), ""
	}
	ids, err := m.tok.Encode(text, &tokenizer.EncodeOptions{NoSpecial: true})
	if err != nil {
		return 0, false, ""
	}
	seen := map[int32]bool{}
	for _, id := range ids {
		if seen[id] || shows(m.tok, id) {
			seen[id] = true
			continue
		}
		seen[id] = true
		if name, ok := m.tok.Token(id); ok && strings.Contains(text, name) {
			return 0, false, name
		}
	}
	return 0, false, ""
}

// shows reports whether a token adds text to a stream. Special tokens do not.
func shows(tok tokenizer.Tokenizer, id int32) bool {
	s := tok.Stream()
	return s.Next(id)+s.Flush() != ""
}

// stopper finds stop strings in streamed text. It holds back text that could be the start of one.
type stopper struct {
	stops []string
	held  string
}

// add appends the next piece of text. It returns the text that can be shown, and whether a stop
// string was found; the stop string and all text after it are dropped.
func (s *stopper) add(text string) (show string, stopped bool) {
	s.held += text
	first := -1
	for _, stop := range s.stops {
		if i := strings.Index(s.held, stop); i >= 0 && (first < 0 || i < first) {
			first = i
		}
	}
	if first >= 0 {
		show, s.held = s.held[:first], ""
		return show, true
	}
	keep := 0 // length of the longest suffix that starts a stop string
	for _, stop := range s.stops {
		for n := min(len(stop)-1, len(s.held)); n > keep; n-- {
			if strings.HasSuffix(s.held, stop[:n]) {
				keep = n
			}
		}
	}
	cut := len(s.held) - keep
	show, s.held = s.held[:cut], s.held[cut:]
	return show, false
}

// rest returns the text held back at the end.
func (s *stopper) rest() string {
	text := s.held
	s.held = ""
	return text
}
