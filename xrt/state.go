package xrt

import "fmt"

// State is where a run or a runlist stands (XRT's ert_cmd_state). The device writes it into the command.
type State int

// The states of a command. A run that was started keeps the state New or becomes Queued, Submitted or Running, as the driver likes.
const (
	New       State = 1
	Queued    State = 2
	Running   State = 3
	Completed State = 4
	Failed    State = 5 // the device reported an error
	Aborted   State = 6 // not run, or ended early, because something else failed
	Submitted State = 7
	TimedOut  State = 8 // no progress until the driver gave up
)

var stateNames = [...]string{New: "new", Queued: "queued", Running: "running", Completed: "completed", Failed: "failed", Aborted: "aborted",
	Submitted: "submitted", TimedOut: "timed out"}

// String is the state in words.
func (s State) String() string {
	if s < New || int(s) >= len(stateNames) {
		return fmt.Sprintf("state %d", int(s))
	}
	return stateNames[s]
}

// Final reports whether the device is done with the command, well or not.
func (s State) Final() bool { return s >= Completed && s != Submitted }
