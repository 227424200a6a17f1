package timing

import "time"

// BusyShare is the share of the machine that other processes may take before they are said to
// disturb a measurement: one core of ten, or a tenth of each. An idle desktop or server takes less
// than a twentieth.
const BusyShare = 0.10

// minWatched is the shortest time for which a share is known: processor time is counted in ticks
// of 10 ms.
const minWatched = 200 * time.Millisecond

// Watch measures how much of the machine other processes take. On systems other than Linux that is
// unknown.
type Watch struct {
	started time.Time
	before  cpuTimes
	known   bool
}

// cpuTimes are seconds of processor time.
type cpuTimes struct {
	all  float64 // of every core, busy or idle
	busy float64 // of every core, including steal time
	own  float64 // of this process
}

// NewWatch starts to watch.
func NewWatch() *Watch {
	w := &Watch{started: time.Now()}
	w.before, w.known = readTimes()
	return w
}

// Share returns the share of the machine that other processes have taken since the start. It
// returns false if the share is not known, or not yet.
func (w *Watch) Share() (float64, bool) {
	now, ok := readTimes()
	if !ok || !w.known || time.Since(w.started) < minWatched || now.all <= w.before.all {
		return 0, false
	}
	others := (now.busy - w.before.busy) - (now.own - w.before.own)
	return min(1, max(0, others/(now.all-w.before.all))), true
}

// disturbed reports whether other processes are busy, or whether it is too early to tell.
func (w *Watch) disturbed() bool {
	s, ok := w.Share()
	return s > BusyShare || !ok && w.known && time.Since(w.started) < minWatched
}

// shareOrNil returns the share, or nil if it is not known.
func (w *Watch) shareOrNil() *float64 {
	s, ok := w.Share()
	if !ok {
		return nil
	}
	return &s
}
