package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/npukit/npukit/internal/readfile"
)

// OpenFolder opens the tokenizer of a Hugging Face folder, as [Open] does: tokenizer.json or
// tokenizer.json.gz, with the added_tokens_decoder of tokenizer_config.json. As in transformers, a
// token in both files keeps the id of tokenizer.json and takes the settings of
// tokenizer_config.json. A token that only tokenizer_config.json has is added under its id there.
func OpenFolder(dir string) (Tokenizer, error) {
	path := filepath.Join(dir, "tokenizer.json")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(path + ".gz"); err == nil {
			path += ".gz"
		}
	}
	config := filepath.Join(dir, "tokenizer_config.json")
	more, err := readDecoder(config)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", config, err)
	}
	return openCoder(path, more)
}

// maxConfig bounds a tokenizer_config.json. The largest published files have 1 MB.
const maxConfig = 16 << 20

// readDecoder returns the added_tokens_decoder of a tokenizer_config.json, sorted by id. A missing
// file has none.
func readDecoder(path string) ([]addedToken, error) {
	data, err := readfile.Regular(path, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseDecoder(data)
}

// decoderToken is a token of added_tokens_decoder, whose key is the id. Other fields are ignored.
type decoderToken struct {
	Content    *string `json:"content"`
	SingleWord bool    `json:"single_word"`
	LStrip     bool    `json:"lstrip"`
	RStrip     bool    `json:"rstrip"`
	Normalized *bool   `json:"normalized"` // default: the opposite of special
	Special    bool    `json:"special"`
}

// namedToken is a token that tokenizer_config.json names, for example eos_token: a string or an
// object.
type namedToken string

func (t *namedToken) UnmarshalJSON(data []byte) error {
	if data[0] != '{' {
		_ = json.Unmarshal(data, (*string)(t)) // package checkpoint checks these strictly
		return nil
	}
	var object struct{ Content string }
	_ = json.Unmarshal(data, &object)
	*t = namedToken(object.Content)
	return nil
}

func parseDecoder(data []byte) ([]addedToken, error) {
	if err := checkPointer(data); err != nil {
		return nil, err
	}
	var config struct {
		Decoder map[string]decoderToken `json:"added_tokens_decoder"`

		BOS  namedToken `json:"bos_token"`
		EOS  namedToken `json:"eos_token"`
		Unk  namedToken `json:"unk_token"`
		Sep  namedToken `json:"sep_token"`
		Pad  namedToken `json:"pad_token"`
		Cls  namedToken `json:"cls_token"`
		Mask namedToken `json:"mask_token"`
	}
	if err := json.Unmarshal(bytes.TrimPrefix(data, []byte("\uFEFF")), &config); err != nil {
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
			return nil, fmt.Errorf("%q is of the wrong type: %s", wrong.Field, wrong.Value)
		}
		return nil, err
	}
	named := []namedToken{config.BOS, config.EOS, config.Unk, config.Sep, config.Pad, config.Cls, config.Mask}
	var list []addedToken
	for _, key := range slices.Sorted(maps.Keys(config.Decoder)) {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil || id < 0 {
			return nil, fmt.Errorf("added_tokens_decoder: key %q is not a token id, a non-negative integer", key)
		}
		d := config.Decoder[key]
		if d.Content == nil {
			return nil, fmt.Errorf("added_tokens_decoder: token %s has no content", key)
		}
		if *d.Content == "" { // transformers skips it
			continue
		}
		a := addedToken{
			ID: int32(id), Content: *d.Content, SingleWord: d.SingleWord, LStrip: d.LStrip, RStrip: d.RStrip,
			Special: d.Special, Normalized: !d.Special,
		}
		if d.Normalized != nil {
			a.Normalized = *d.Normalized
		}
		a.Special = a.Special || slices.Contains(named, namedToken(a.Content))
		list = append(list, a)
	}
	slices.SortStableFunc(list, func(a, b addedToken) int { return int(a.ID) - int(b.ID) })
	return list, nil
}

// merge adds the tokens of an added_tokens_decoder to those of tokenizer.json.
func (p *parts) merge(decoder []addedToken) error {
	if len(decoder) == 0 {
		return nil
	}
	merged, err := mergeAdded(p.added, decoder, func(yield func(string, int32)) {
		for _, e := range p.vocab {
			yield(e.token, e.id)
		}
	})
	p.added = merged
	return err
}

// mergeAdded merges added tokens with those of an added_tokens_decoder. vocab yields the tokens of
// the vocabulary as tokenizer.json writes them.
func mergeAdded(added, decoder []addedToken, vocab func(yield func(token string, id int32))) ([]addedToken, error) {
	index := map[string]int{} // of added, by content
	wanted := map[int32]string{}
	for i, a := range added {
		index[a.Content] = i
	}
	ids := map[string]int32{} // of the decoder's tokens in the vocabulary
	for _, a := range decoder {
		ids[a.Content] = none
		wanted[a.ID] = ""
	}
	vocab(func(token string, id int32) {
		if _, ok := ids[token]; ok {
			ids[token] = id
		}
		if _, ok := wanted[id]; ok {
			wanted[id] = token
		}
	})
	added = slices.Clone(added)
	for _, a := range added {
		if _, ok := wanted[a.ID]; ok {
			wanted[a.ID] = a.Content
		}
	}
	for _, a := range decoder {
		if i, ok := index[a.Content]; ok {
			a.ID = added[i].ID
			a.Special = a.Special || added[i].Special
			added[i] = a
			continue
		}
		if id := ids[a.Content]; id != none {
			a.ID = id
		} else if other := wanted[a.ID]; other != "" && other != a.Content {
			return nil, fmt.Errorf("tokenizer_config.json: added_tokens_decoder: token %q has the id %d "+
				"of %q: use an unused id, or remove the token", a.Content, a.ID, other)
		}
		wanted[a.ID] = a.Content
		index[a.Content] = len(added)
		added = append(added, a)
	}
	return added, nil
}
