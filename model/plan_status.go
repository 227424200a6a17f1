package model

import "errors"

// PlanStatus is how far a deployment has come to trust its plan.
type PlanStatus string

// The statuses of a deployment's plan. Only an independent evaluation makes it accepted.
const (
	PlanDraft    PlanStatus = "draft"
	PlanAccepted PlanStatus = "accepted"
	PlanFailed   PlanStatus = "failed"
)

// ErrPlanFailed is the error of a plan that an evaluation has found wrong, and that must not be used.
var ErrPlanFailed = errors.New("model: the plan has failed its evaluation: deploy again, or run without it")

func (s PlanStatus) valid() bool {
	switch s {
	case "", PlanDraft, PlanAccepted, PlanFailed:
		return true
	}
	return false
}

// Usable reports a plan that must not be used.
func (p *Plan) Usable() error {
	if p.Status == PlanFailed {
		return ErrPlanFailed
	}
	return nil
}
