package localmodel

import "testing"

// A typo finds what was meant, and another word finds nothing.
func TestNearest(t *testing.T) {
	names := []string{"SmolLM2-135M-Instruct-Q4_1", "Qwen3-0.6B", "Qwen3-1.7B", "Llama-3.2-1B"}
	for typed, want := range map[string]string{
		"Qwen3-0.6":                     "Qwen3-0.6B",
		"qwen-3-1.7b":                   "Qwen3-1.7B",
		"models/Llama3.2-1B.gguf":       "Llama-3.2-1B",
		"smollm2":                       "SmolLM2-135M-Instruct-Q4_1",
		"SmolLM2-135M-Instruct-Q4.gguf": "SmolLM2-135M-Instruct-Q4_1",
		"mistral":                       "",
		"x":                             "",
	} {
		got := ""
		if near := Nearest(typed, names); len(near) > 0 {
			got = near[0]
		}
		if got != want {
			t.Errorf("nearest(%q) = %q, want %q", typed, got, want)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"same", "same", 0}} {
		if got := editDistance(tc.a, tc.b); got != tc.want {
			t.Errorf("editDistance(%q, %q) = %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}
