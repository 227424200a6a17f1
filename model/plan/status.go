package plan

import "errors"

// PlanStatus is how far a deployment has come to trust its plan.
type Status string

// The statuses of a deployment's plan. Only an independent evaluation makes it accepted.
const (
	Draft    Status = "draft"
	Accepted Status = "accepted"
	Failed   Status = "failed"
)

// ErrFailed is the error of a plan that an evaluation has found wrong, and that must not be used.
var ErrFailed = errors.New("plan: the plan has failed its evaluation: deploy again, or run without it")

func (s Status) valid() bool {
	switch s {
	case "", Draft, Accepted, Failed:
		return true
	}
	return false
}

// Usable reports a plan that must not be used.
func (p *Plan) Usable() error {
	if p.Status == Failed {
		return ErrFailed
	}
	return nil
}
