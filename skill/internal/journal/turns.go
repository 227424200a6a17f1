package journal

import (
	"fmt"
	"strconv"
)

// Repetition is one timing of a plan, from an empty session.
type Repetition struct {
	First float64 `json:"first_s"` // s to the first token's logits
	Token float64 `json:"token_s"` // s of a token after it
}

// Turn is a repetition of a changed plan between two of the plan before it.
type Turn struct {
	Before [2]Repetition `json:"before"`
	After  Repetition    `json:"after"`
}

// Turns sums up how a changed plan was timed beside the one before it: before, after, before, after,
// and so on to a last before. Every repetition of the changed plan is compared with the two around it,
// so that load and a clock that drifts affect both alike, and decide nothing.
type Turns struct {
	Count int `json:"count"` // repetitions of the changed plan
	// Before and After are the two times in the median turn. Before is the geometric mean of the
	// repetitions around After, which is the time in between if the machine becomes slower or faster
	// by some share from one to the next. Gain follows from the two.
	Before float64 `json:"before_s"`
	After  float64 `json:"after_s"`
	Gain   float64 `json:"gain"` // 1 - After/Before: 0.2 is 20 % less time
	// Noise is what Gain must exceed for the change to be kept: how far the slowest turns lie below the
	// median, without as many of them as chance alone explains, and leastSpread at least.
	Noise float64 `json:"noise"`
	// Others is the share of the machine that other processes took meanwhile; nil where it is not known.
	Others *float64 `json:"others_share,omitempty"`
}

// Paired is how a plan compares with another one that was timed in turns with it.
type Paired struct {
	Plan  string `json:"plan_sha256"` // the other plan, which is the one before
	First Turns  `json:"first_token"`
	Token Turns  `json:"token"`
}

// of is what a phase is about.
func (p *Paired) Of(phase Phase) *Turns {
	if phase == Decode {
		return &p.Token
	}
	return &p.First
}

// Faster reports whether the changed plan is faster beyond noise.
func (t *Turns) Faster() bool { return t.Gain > max(LeastSpread, t.Noise) }

// String gives the two times of the median turn, their difference, and the bound that it is held to.
func (t *Turns) String() string {
	gain, noise := Percents(t.Gain, t.Noise)
	return fmt.Sprintf("%s -> %s measured (%s %% in the median of %d turns, noise %s %%; %s)", Seconds(t.Before),
		Seconds(t.After), gain, t.Count, noise, Busy(t.Others))
}

// Percents are the change of the time, with its sign, and the bound, both in percent. Rounded as they
// are, they still say whether the one exceeds the other.
func (t *Turns) Percents() (change, noise string) { return Percents(t.Gain, t.Noise) }

func Percents(gain, noise float64) (change, bound string) {
	percent := 0 - 100*gain // and no negative zero
	for digits := 1; ; digits++ {
		change = strconv.FormatFloat(percent, 'f', digits, 64)
		bound = strconv.FormatFloat(100*noise, 'f', digits, 64)
		c, errC := strconv.ParseFloat(change, 64)
		b, errB := strconv.ParseFloat(bound, 64)
		if errC != nil || errB != nil || digits == 9 || (-c > b) == (gain > noise) {
			break
		}
	}
	if percent >= 0 {
		change = "+" + change
	}
	return change, bound
}

// busyText says how busy the machine was.
func Busy(others *float64) string {
	if others == nil {
		return "how busy the machine was is not known"
	}
	return fmt.Sprintf("other processes took %.0f %% of the machine", 100**others)
}

// TurnsNote are turns of a comparison that is not complete: a process that goes on need not take them
// again.
type TurnsNote struct {
	Before string `json:"before_sha256"` // the plans
	After  string `json:"after_sha256"`
	Device string `json:"device"` // its name, with threads and kernels
	Turns  []Turn `json:"turns"`
	// Seconds is how long they took, and Others the share of the machine that other processes took.
	Seconds float64  `json:"seconds"`
	Others  *float64 `json:"others_share,omitempty"`
}

// seconds writes a time for people.
func Seconds(s float64) string {
	switch {
	case s >= 1:
		return fmt.Sprintf("%.3g s", s)
	case s >= 1e-3:
		return fmt.Sprintf("%.3g ms", s*1e3)
	}
	return fmt.Sprintf("%.3g us", s*1e6)
}

// leastSpread is the noise that a measurement has at least, whatever its own repetitions say: two runs of the same program on a quiet machine differ by some
// 2 % when minutes lie between them.
const LeastSpread = 0.02
