//go:build cgo && !windows && amd64

package amx

import "testing"

// A child process detects an instruction that returns wrong sums, faults or never ends, and this
// process survives.
func TestFaultsOfAProbeCostTheChildAlone(t *testing.T) {
	for _, tc := range []struct {
		name string
		way  int
		want bool
	}{
		{"right", probeGood, true}, {"wrong sums", probeWrong, false}, {"an illegal instruction", probeFaults, false},
		{"a segmentation fault", probeReads, false}, {"a hang", probeHangs, false}, {"right again", probeGood, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := survives(tc.way); got != tc.want {
				t.Errorf("it is %v, want %v", got, tc.want)
			}
		})
	}
}
