package tokenizer

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// metaspace is a SentencePiece tokenizer: BPE with spaces as U+2581 and bytes as tokens.
const metaspace = `{"version": "1.0", "added_tokens": [], "normalizer": null,
 "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
 "post_processor": null,
 "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Metaspace", "replacement": "▁",
		"prepend_scheme": "always", "split": true}]},
 "model": {"type": "BPE", "unk_token": null, "byte_fallback": true, "fuse_unk": false,
  "vocab": {"▁": 0, "a": 1, "b": 2, "▁a": 3, "ab": 4, "<0xE6>": 5, "<0x97>": 6, "<0xA5>": 7, "▁ab": 8},
  "merges": ["▁ a", "▁a b", "a b"]}}`

func writeMetaspace(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	if err := os.WriteFile(path, []byte(metaspace), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Open rejects other kinds of tokenizers in every build.
func TestOpenRefusesOtherKinds(t *testing.T) {
	var unsupported *UnsupportedError
	if _, err := openByteLevel(writeMetaspace(t)); !errors.As(err, &unsupported) {
		t.Errorf("Open: %v, want an UnsupportedError", err)
	}
}
