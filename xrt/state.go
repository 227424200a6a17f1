package xrt

import "fmt"

// State is the state of a run or a runlist: "new", "queued", "submitted", "running", "completed",
// "failed" (the device reported an error), "aborted" (not executed or stopped, because another
// command failed) or "timed out" (stopped by the driver for lack of progress). After Start a run is
// in one of the first four, depending on the driver.
type State string

const (
	stateNew       State = "new"
	stateRunning   State = "running"
	stateCompleted State = "completed"
	stateAborted   State = "aborted"
	stateTimedOut  State = "timed out"
)

// states are the states by XRT's number (ert_cmd_state).
var states = [...]State{1: stateNew, 2: "queued", 3: stateRunning, 4: stateCompleted, 5: "failed",
	6: stateAborted, 7: "submitted", 8: stateTimedOut}

// stateOf returns the state with XRT's number n, and "" for 0.
func stateOf(n int) State {
	if n < 0 || n >= len(states) {
		return State(fmt.Sprintf("state %d", n))
	}
	return states[n]
}

// isFinal reports whether a command with XRT's number n has ended, successfully or not.
func isFinal(n int) bool { return n >= 4 && n != 7 }
