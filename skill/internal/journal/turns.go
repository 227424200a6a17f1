package journal

import (
	"fmt"
	"strconv"
)

// Repetition is one timing of a plan, starting with an empty session.
type Repetition struct {
	First float64 `json:"first_s"` // to the first token's logits
	Token float64 `json:"token_s"` // of a later token
}

// Turn is a repetition of a changed plan between two repetitions of the plan before.
type Turn struct {
	Before [2]Repetition `json:"before"`
	After  Repetition    `json:"after"`
}

// Turns sums up how a changed plan was timed in turns with the plan before: before, after, before,
// after, and so on to a last before. Each repetition of the changed plan is compared with the two
// around it, so that load and clock drift affect both plans alike.
type Turns struct {
	Count int `json:"count"` // repetitions of the changed plan
	// Before and After are the times of the median turn. Before is the geometric mean of the
	// repetitions around After, which is right if the machine changes speed by a constant factor
	// from one repetition to the next.
	Before float64 `json:"before_s"`
	After  float64 `json:"after_s"`
	Gain   float64 `json:"gain"` // 1 - After/Before: 0.2 is 20 % less time
	// Noise is the bound that Gain must exceed: the distance from the median to the
	// slowest turns, except as many of them as chance explains, and at least LeastSpread.
	Noise float64 `json:"noise"`
	// Others is the share of the machine that other processes took meanwhile, or nil if it is not
	// known.
	Others *float64 `json:"others_share,omitempty"`
}

// Paired is how a plan compares with another plan that was timed in turns with it.
type Paired struct {
	Plan  string `json:"plan_sha256"` // the plan before
	First Turns  `json:"first_token"`
	Token Turns  `json:"token"`
}

// Of returns the comparison of the time that a phase optimises.
func (p *Paired) Of(phase Phase) *Turns {
	if phase == Decode {
		return &p.Token
	}
	return &p.First
}

// Faster reports whether the changed plan is faster beyond noise.
func (t *Turns) Faster() bool { return t.Gain > max(LeastSpread, t.Noise) }

// String returns the two times of the median turn, their difference, and its bound.
func (t *Turns) String() string {
	gain, noise := Percents(t.Gain, t.Noise)
	return fmt.Sprintf("%s -> %s measured (%s %% in the median of %d turns, noise %s %%; %s)", Seconds(t.Before),
		Seconds(t.After), gain, t.Count, noise, Busy(t.Others))
}

// Percents returns the signed change of the time and its bound, in percent. They have as many
// digits as are needed to tell whether the change exceeds the bound.
func (t *Turns) Percents() (change, noise string) { return Percents(t.Gain, t.Noise) }

// Percents is [Turns.Percents] of a gain and its noise.
func Percents(gain, noise float64) (change, bound string) {
	percent := 0 - 100*gain // avoids a negative zero
	for digits := 1; ; digits++ {
		change = strconv.FormatFloat(percent, 'f', digits, 64)
		bound = strconv.FormatFloat(100*noise, 'f', digits, 64)
		c, errC := strconv.ParseFloat(change, 64)
		b, errB := strconv.ParseFloat(bound, 64)
		if errC != nil || errB != nil || digits == 9 ||
			(-c > b) == (gain > noise) && (c > b) == (-gain > noise) {
			break
		}
	}
	if percent >= 0 {
		change = "+" + change
	}
	return change, bound
}

// Busy returns a clause about how busy the machine was.
func Busy(others *float64) string {
	if others == nil {
		return "how busy the machine was is not known"
	}
	return fmt.Sprintf("other processes took %.0f %% of the machine", 100**others)
}

// TurnsNote are turns of a comparison that is not complete. A process that resumes need not take
// them again.
type TurnsNote struct {
	Before string `json:"before_sha256"` // the plans
	After  string `json:"after_sha256"`
	Device string `json:"device"` // its name, with threads and kernels
	Turns  []Turn `json:"turns"`
	// Seconds is how long they took, and Others the share of the machine that other processes took.
	Seconds float64  `json:"seconds"`
	Others  *float64 `json:"others_share,omitempty"`
}

// Seconds returns a time for people.
func Seconds(s float64) string {
	switch {
	case s >= 1:
		return fmt.Sprintf("%.3g s", s)
	case s >= 1e-3:
		return fmt.Sprintf("%.3g ms", s*1e3)
	}
	return fmt.Sprintf("%.3g us", s*1e6)
}

// LeastSpread is the least noise of a measurement: two runs of the same
// program on a quiet machine differ by about 2 % if minutes lie between them.
const LeastSpread = 0.02
