package terminal

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// What keys send comes out as package term can read it, however it is cut, and as the text that it
// was.
func TestReadableKeys(t *testing.T) {
	for _, tc := range []struct{ name, keys, text string }{
		{"text", "naïve 東京\r", "naïve 東京\r"},
		{"bytes that are no UTF-8", "caf\xe9 \xff\xfe\r", "caf\xe9 \xff\xfe\r"},
		{"half a character at the end of a line", "\xe6\x9d\r", "\xe6\x9d\r"},
		{"the replacement character", "a\ufffdb", "a\ufffdb"},
		{"keys that package term knows", "\x1b[A\x1b[1;3D\x1b[3~\x03", "\x1b[A\x1b[1;3D\x1b[3~\x03"},
		{"a sequence that ends in the middle", "\x1b[1\x03", "\x03"},
		{"a sequence with another end", "\x1b[1@x", "x"},
		{"F1", "\x1bOPx", "x"},
		{"Esc before Ctrl-C", "\x1b\x03", "\x03"},
	} {
		for cut, r := range map[string]io.Reader{"whole": strings.NewReader(tc.keys),
			"byte by byte": iotest.OneByteReader(strings.NewReader(tc.keys))} {
			got, err := io.ReadAll(&keyReader{in: r})
			if text := typedText(string(got)); err != nil || text != tc.text {
				t.Errorf("%s, %s: %q, %v; want %q", tc.name, cut, text, err, tc.text)
			}
			if strings.ContainsRune(string(got), '\ufffd') {
				t.Errorf("%s, %s: package term stops at %q", tc.name, cut, got)
			}
		}
	}
	// Alt with a key: an Esc alone is a key of its own.
	for keys, want := range map[string]string{"\x1bbx": "x", "\x1béx": "x"} {
		if got, err := io.ReadAll(&keyReader{in: strings.NewReader(keys)}); err != nil || string(got) != want {
			t.Errorf("%q gives %q, %v; want %q", keys, got, err, want)
		}
	}
	if got, err := io.ReadAll(&keyReader{in: iotest.OneByteReader(strings.NewReader("\x1b1 + 1\r"))}); err != nil ||
		string(got) != "1 + 1\r" {
		t.Errorf("Esc before a text: %q, %v", got, err)
	}
}
