package plan

import "errors"

// Status is the state of a plan in its deployment.
type Status string

// The statuses of a deployment's plan. Only an independent evaluation accepts one.
const (
	Draft    Status = "draft"
	Accepted Status = "accepted"
	Failed   Status = "failed"
)

// ErrFailed is the error of opening a plan that failed its evaluation.
var ErrFailed = errors.New("plan: the plan has failed its evaluation: deploy again, or run without it")

func (s Status) valid() bool {
	switch s {
	case "", Draft, Accepted, Failed:
		return true
	}
	return false
}
