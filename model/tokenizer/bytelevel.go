package tokenizer

import "unicode/utf8"

// Byte-level vocabularies write each byte as a printable character: the printable ones of Latin-1
// as themselves, the other 68 as the characters from U+0100 on, in order. A space is written
// U+0120. Source: GPT-2's encoder.

// runeBytes gives each character its byte, or -1 if it is no byte's.
var runeBytes = alphabet()

func alphabet() (from [256 + 68]int16) {
	for i := range from {
		from[i] = -1
	}
	next := rune(256)
	for b := range rune(256) {
		printable := b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae
		if printable {
			from[b] = int16(b)
		} else {
			from[next] = int16(b)
			next++
		}
	}
	return from
}

// decodeBytes gives the bytes that a token of the vocabulary stands for. If one of its characters
// is outside the alphabet, as only those of added tokens are, it stands for itself as a whole, and
// ok is false.
func decodeBytes(token string) (text string, ok bool) {
	var room [64]byte
	bytes, ok := appendBytes(room[:0], token)
	if !ok {
		return token, false
	}
	return string(bytes), true
}

func appendBytes(to []byte, token string) ([]byte, bool) {
	for i := 0; i < len(token); {
		r, n := rune(token[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRuneInString(token[i:])
		}
		if int(r) >= len(runeBytes) || runeBytes[r] < 0 {
			return to, false
		}
		to = append(to, byte(runeBytes[r]))
		i += n
	}
	return to, true
}
