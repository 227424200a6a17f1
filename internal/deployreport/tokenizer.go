package main

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/npukit/npukit/model/checkpoint"
)

// writeTokenizer gives a folder the tokenizer of a GGUF file of SmolLM2, as Hugging Face's
// tokenizer.json has it: byte-level BPE, digits one by one. With it a trained model reads English
// when it is judged; what an oracle makes of random ids is no text that bounds were measured on.
func writeTokenizer(folder string, v checkpoint.Vocab) error {
	type object = map[string]any
	vocab, added := map[string]int{}, []object{}
	for id, token := range v.Tokens {
		vocab[token] = id
		if id < len(v.Types) && v.Types[id] == controlToken {
			added = append(added, object{"id": id, "content": token, "single_word": false, "lstrip": false,
				"rstrip": false, "normalized": false, "special": true})
		}
	}
	data, err := json.Marshal(object{
		"version":      "1.0",
		"added_tokens": added,
		"pre_tokenizer": object{"type": "Sequence", "pretokenizers": []object{
			{"type": "Digits", "individual_digits": true},
			{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
		}},
		"decoder": object{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
		"model":   object{"type": "BPE", "vocab": vocab, "merges": v.Merges},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "tokenizer.json"), data, 0o644)
}

// controlToken is the type of tokens in a GGUF file that are no text.
const controlToken = 3
