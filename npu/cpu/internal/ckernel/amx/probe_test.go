//go:build cgo && !windows && amd64

package amx

import "testing"

// An instruction that gives wrong sums, faults or never ends is found out by a child process, and this one lives on.
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
