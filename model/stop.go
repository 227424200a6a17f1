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
	Text string `json:"text"` // as the tokenizer writes it; empty without a tokenizer
	// Origins are the files or GGUF metadata keys that name it, such as "generation_config.json",
	// and "token text" if its text alone says what it is.
	Origins []string `json:"origins"`
}

// originText is the origin of an end token that is known by its text.
const originText = "token text"

// endTexts are control tokens that end an answer in every model whose tokenizer has them.
// Conversions and fine-tunes often name another end token, or none, while the model goes on to
// write these.
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

// EndTokens returns the tokens that end an answer of a checkpoint: the union of those that
// generation_config.json, config.json and GGUF metadata name by id, of tokenizer_config.json's
// eos_token, and of well-known control tokens that the tokenizer has, such as <|eot_id|>. The
// tokenizer may be nil.
func EndTokens(ck *checkpoint.Checkpoint, tok tokenizer.Coder) []EndToken {
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
	for _, e := range ck.EndIDs() {
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
	if _, eos := ck.SpecialTokens(); eos != "" && ck.Format() != "gguf" { // GGUF names it by id
		find(eos, "tokenizer_config.json")
	}
	_, harmony := tokenOf(tok, "<|return|>")
	for _, text := range endTexts {
		if harmony && text == "<|end|>" {
			continue // in gpt-oss's format it ends a message, and the answer's next one follows
		}
		find(text, originText)
	}
	for i := range ends {
		ends[i].Text, _ = tok.Token(ends[i].ID)
	}
	return ends
}

// tokenOf returns the token that stands for text as a whole: an added token, since pre-tokenization
// would cut such a text before a vocabulary could have it.
func tokenOf(tok tokenizer.Coder, text string) (int32, bool) {
	ids, err := tok.Encode(text, &tokenizer.EncodeOptions{NoSpecial: true})
	if err != nil || len(ids) != 1 {
		return 0, false
	}
	own, ok := tok.Token(ids[0])
	return ids[0], ok && own == text
}

// hiddenToken returns the text of the first special token within a text.
func hiddenToken(tok tokenizer.Coder, text string) (string, bool) {
	ids, err := tok.Encode(text, &tokenizer.EncodeOptions{NoSpecial: true})
	if err != nil {
		return "", false
	}
	for _, id := range ids {
		if name, ok := tok.Token(id); ok && strings.Contains(text, name) && !shows(tok, id) {
			return name, true
		}
	}
	return "", false
}

// shows reports whether a token adds text to a stream. Special tokens do not.
func shows(tok tokenizer.Coder, id int32) bool {
	s := tok.Stream()
	return s.Next(id)+s.Flush() != ""
}

// stopper finds stop strings in streamed text. Text that could be the beginning of one is held back
// until it is known not to be.
type stopper struct {
	stops []string
	held  string
}

// add takes the next piece of text and returns what may be shown, and whether a stop string has
// come; it and what follows are dropped.
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
	keep := 0 // length of the longest suffix that begins a stop string
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

// rest returns what was held back at the end of the text.
func (s *stopper) rest() string {
	text := s.held
	s.held = ""
	return text
}
