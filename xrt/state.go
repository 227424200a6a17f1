package xrt

import "fmt"

// State is the state of a run or a runlist (XRT's ert_cmd_state).
type State int

// States of a command. After Start a run is in the state New, Queued, Submitted or Running,
// depending on the driver.
const (
	New       State = 1
	Queued    State = 2
	Running   State = 3
	Completed State = 4
	Failed    State = 5 // the device reported an error
	Aborted   State = 6 // not executed or stopped, because another command failed
	Submitted State = 7
	TimedOut  State = 8 // stopped by the driver for lack of progress
)

var stateNames = [...]string{New: "new", Queued: "queued", Running: "running",
	Completed: "completed", Failed: "failed", Aborted: "aborted",
	Submitted: "submitted", TimedOut: "timed out"}

// String returns the name of the state.
func (s State) String() string {
	if s < New || int(s) >= len(stateNames) {
		return fmt.Sprintf("state %d", int(s))
	}
	return stateNames[s]
}

// Final reports whether the command has ended, successfully or not.
func (s State) Final() bool { return s >= Completed && s != Submitted }
