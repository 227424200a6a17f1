//go:build hftokenizers

package tokenizer

import (
	"io"
	"slices"
	"testing"
)

// Open uses Hugging Face's library for unsupported files, and streams their text character by
// character.
func TestOpenTakesOtherKinds(t *testing.T) {
	c, err := Open(writeMetaspace(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.(io.Closer).Close()
	ids, err := c.Encode("ab 日 a", nil)
	if want := []int32{8, 0, 5, 6, 7, 3}; err != nil || !slices.Equal(ids, want) {
		t.Fatalf("ids %v, %v; want %v", ids, err, want)
	}
	s := c.Stream()
	var pieces []string
	for _, id := range ids {
		pieces = append(pieces, s.Next(id))
	}
	pieces = append(pieces, s.Flush())
	if want := []string{"ab", " ", "", "", "日", " a", ""}; !slices.Equal(pieces, want) {
		t.Errorf("streamed %q, want %q", pieces, want)
	}
	ours, err := Open(ownPath("gpt2"))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := ours.(*byteLevel); !ok {
		t.Errorf("byte-level BPE was opened as %T, want our own", ours)
	}
}
