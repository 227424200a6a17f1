package tokenizer

import "unicode/utf8"

// Byte-level vocabularies write each byte as a printable character: the printable characters of
// Latin-1 as themselves, the other 68 bytes as the characters from U+0100 on, in order. A space is
// U+0120. Source: GPT-2's encoder.

// runeBytes maps each character of the alphabet to its byte. Other characters map to -1.
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

// decodeBytes returns the bytes of a token. If the token has a character outside the alphabet, as
// added tokens may, decodeBytes returns the token itself and ok is false.
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
