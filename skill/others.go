package skill

import "time"

// busyShare is the share of the machine that others may take before they are said to disturb a measurement: one core of ten, or a tenth of each. What a desktop or a server does
// by itself is below a twentieth.
const busyShare = 0.10

// leastWatched is how long one must watch to know: processor time is counted in ticks of 10 ms.
const leastWatched = 200 * time.Millisecond

// othersWatch measures how much of the machine other processes take while this one works.
type othersWatch struct {
	started time.Time
	before  cpuTimes
	known   bool
}

// cpuTimes are seconds of processor time.
type cpuTimes struct {
	all  float64 // of every core, busy or idle
	busy float64 // of every core, with what a hypervisor took away
	own  float64 // of this process
}

func watchOthers() *othersWatch {
	w := &othersWatch{started: time.Now()}
	w.before, w.known = readTimes()
	return w
}

// share is the part of the machine that others have taken, and false where that cannot be known yet, or at all.
func (w *othersWatch) share() (float64, bool) {
	now, ok := readTimes()
	if !ok || !w.known || time.Since(w.started) < leastWatched || now.all <= w.before.all {
		return 0, false
	}
	others := (now.busy - w.before.busy) - (now.own - w.before.own)
	return min(1, max(0, others/(now.all-w.before.all))), true
}

// disturb reports that others work beside this process, or that it is too early to know.
func (w *othersWatch) disturb() bool {
	s, ok := w.share()
	return s > busyShare || !ok && w.known && time.Since(w.started) < leastWatched
}

// shareOrNil is the share, or nil where it is not known.
func (w *othersWatch) shareOrNil() *float64 {
	s, ok := w.share()
	if !ok {
		return nil
	}
	return &s
}
