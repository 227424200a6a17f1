package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
)

// compose and golang.org/x/text agree where the latter does not change the text: for every
// character, and for random sequences of those that compose.
func TestComposeAgreesWithNorm(t *testing.T) {
	check := func(s string) {
		t.Helper()
		if got, want := compose(s), norm.NFC.String(s); got != want {
			t.Errorf("compose(%+q) = %+q, want %+q", s, got, want)
		}
	}
	var combining []rune
	for r := rune(0xa0); r <= 0x323af; r++ {
		if r >= 0xd800 && r <= 0xf8ff || norm.NFC.PropertiesString(string(r)).BoundaryBefore() &&
			norm.NFC.PropertiesString(string(r)).Decomposition() == nil {
			continue
		}
		combining = append(combining, r)
		check("a" + string(r) + "\u0323\u0301" + string(r))
		check(string(r) + "\u0301\u0316b")
	}
	if len(combining) < 2000 {
		t.Fatalf("only %d characters compose or decompose", len(combining))
	}
	bases := []rune("aeAEouȨᄀ가각ᅡᆨ각ে\u09be日")
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		s := []rune{bases[rng.IntN(len(bases))]}
		for range 1 + rng.IntN(6) {
			s = append(s, combining[rng.IntN(len(combining))])
			if rng.IntN(3) == 0 {
				s = append(s, 0x300+rng.Int32N(0x45))
			}
			if rng.IntN(4) == 0 {
				s = append(s, bases[rng.IntN(len(bases))])
			}
		}
		check(string(s))
	}
}

// Runs of marks of any length are ordered and composed, with nothing inserted.
func TestManyMarks(t *testing.T) {
	below, above := strings.Repeat("\u0316", 40), strings.Repeat("\u0301", 40)
	for in, want := range map[string]string{
		"Z" + below + "algo":                  "Z" + below + "algo",
		"a" + below + "\u0301":                "á" + below,
		"xa" + above + below + "b":            "xá" + below + above[len("\u0301"):] + "b",
		above + "a":                           above + "a",
		"가" + above + "\u11a8":                "가" + above + "\u11a8",
		"e\u0301 " + "a" + above + " e\u0301": "é á" + above[len("\u0301"):] + " é",
		// A newer mark, see unicode.go.
		"e" + below + "\u0898" + below + "\u0301e": "e" + below + "\u0898" + below + "\u0301e",
	} {
		if got := nfc(in); got != want {
			t.Errorf("nfc(%+q) = %+q, want %+q", in, got, want)
		}
	}
}
