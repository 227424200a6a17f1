package tokenizer

import "unicode/utf8"

// Byte-level vocabularies write each byte as a printable character: the printable ones of Latin-1 as themselves, the other 68 as the characters
// from U+0100 on, in order. A space is written U+0120. Source: GPT-2's encoder.

// byteRunes gives each byte its character, runeBytes is the inverse.
var byteRunes, runeBytes = alphabet()

func alphabet() (to [256]rune, from map[rune]byte) {
	from = make(map[rune]byte, 256)
	next := rune(256)
	for b := range rune(256) {
		printable := b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae
		if printable {
			to[b] = b
		} else {
			to[b] = next
			next++
		}
		from[to[b]] = byte(b)
	}
	return to, from
}

// decodeBytes turns a vocabulary's text of a token into the bytes that it stands for. Characters outside the alphabet, which only added tokens have, stand for
// themselves.
func decodeBytes(token string) []byte {
	out := make([]byte, 0, len(token))
	for _, r := range token {
		if b, ok := runeBytes[r]; ok {
			out = append(out, b)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}
