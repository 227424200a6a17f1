package tokenizer

import "fmt"

// Vocab is the tokenizer of a GGUF file, from its metadata (keys tokenizer.ggml.*).
type Vocab struct {
	Model          string   // "gpt2" is byte-level BPE
	Pre            string   // name of the pre-tokenizer, for example "qwen2"
	Tokens         []string // by id, in the byte-level alphabet
	Merges         []string // "a b"
	Types          []int32  // by id: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
	BOS, EOS       int      // -1 when absent
	AddBOS, AddEOS bool
}

// GGUF token types.
const (
	typeControl     = 3
	typeUserDefined = 4
)

// preTokenizers maps the names of pre-tokenizers, as llama.cpp's converter writes them, to Hugging
// Face's terms.
var preTokenizers = map[string]struct {
	pattern      string
	digits       bool
	nfc          bool
	ignoreMerges bool
}{
	"llama-bpe":        {pattern: patternLlama3, ignoreMerges: true},
	"llama3":           {pattern: patternLlama3, ignoreMerges: true},
	"llama-v3":         {pattern: patternLlama3, ignoreMerges: true},
	"qwen2":            {pattern: patternQwen2, nfc: true},
	"deepseek-r1-qwen": {pattern: patternQwen2, nfc: true},
	"smollm":           {pattern: patternGPT2, digits: true},
	"gpt-2":            {pattern: patternGPT2},
	"default":          {pattern: patternGPT2},
}

// FromVocab returns the tokenizer of a GGUF file.
func FromVocab(v Vocab) (Tokenizer, error) {
	t, err := fromVocab(v)
	if err != nil {
		return nil, err
	}
	return t, nil
}

func fromVocab(v Vocab) (*byteLevel, error) {
	if v.Model != "gpt2" {
		kind := map[string]string{"llama": " (SentencePiece)", "bert": " (WordPiece)", "t5": " (Unigram)"}[v.Model]
		return nil, fmt.Errorf("tokenizer: %w", &UnsupportedError{fmt.Sprintf("the GGUF tokenizer %q%s", v.Model,
			kind)})
	}
	pre, ok := preTokenizers[v.Pre]
	if !ok {
		return nil, fmt.Errorf("tokenizer: %w", &UnsupportedError{fmt.Sprintf("the GGUF pre-tokenizer %q", v.Pre)})
	}
	if len(v.Types) != 0 && len(v.Types) != len(v.Tokens) {
		return nil, fmt.Errorf("tokenizer: %d tokens and %d token types", len(v.Tokens), len(v.Types))
	}
	p := &parts{vocab: make([]entry, 0, len(v.Tokens)), nfc: pre.nfc, ignoreMerges: pre.ignoreMerges}
	for i, token := range v.Tokens {
		id := int32(i)
		if len(v.Types) > 0 && (v.Types[i] == typeControl || v.Types[i] == typeUserDefined) {
			p.added = append(p.added, addedToken{ID: id, Content: token, Special: v.Types[i] == typeControl})
			continue
		}
		p.vocab = append(p.vocab, entry{token, id})
	}
	p.merges = make([][2]string, len(v.Merges))
	for i, s := range v.Merges {
		left, right, err := cutMerge(s)
		if err != nil {
			return nil, fmt.Errorf("tokenizer: merge %d: %w", i, err)
		}
		p.merges[i] = [2]string{left, right}
	}
	split, err := splitterFor(pre.pattern)
	if err != nil {
		return nil, err
	}
	if pre.digits {
		p.splits = append(p.splits, splitDigits)
	}
	p.splits = append(p.splits, split)
	for _, around := range []struct {
		name string
		id   int
		add  bool
		ids  *[]int32
	}{{"BOS", v.BOS, v.AddBOS, &p.prefix}, {"EOS", v.EOS, v.AddEOS, &p.suffix}} {
		if !around.add || around.id < 0 {
			continue
		}
		if around.id >= len(v.Tokens) {
			return nil, fmt.Errorf("tokenizer: the GGUF metadata: %s is %d, but there are only %d tokens", around.name,
				around.id, len(v.Tokens))
		}
		*around.ids = []int32{int32(around.id)}
	}
	t, err := p.build()
	if err != nil {
		return nil, fmt.Errorf("tokenizer: the GGUF metadata: %w", err)
	}
	return t, nil
}
