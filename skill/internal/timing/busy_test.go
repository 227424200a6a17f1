package timing

import "testing"

// The share of other processes is not known at once.
func TestOthersShare(t *testing.T) {
	w := NewWatch()
	if _, ok := w.Share(); ok {
		t.Error("known at once")
	}
	if !w.known {
		t.Skip("it cannot be known on this system")
	}
	if !w.disturbed() {
		t.Error("taken for quiet before anything was seen")
	}
	w.before.own -= 10 // seconds that this process has worked, and nobody else
	w.started = w.started.Add(-minWatched)
	w.before.all -= 20
	w.before.busy -= 10
	if s, ok := w.Share(); !ok || s > 0.02 {
		t.Errorf("own work is taken for that of others: %v, %v", s, ok)
	}
	w.before.busy -= 10
	if s, ok := w.Share(); !ok || s < 0.45 || s > 0.55 || !w.disturbed() {
		t.Errorf("half of the machine was taken: %v, %v", s, ok)
	}
}
