package skill

import (
	"context"
	"fmt"
)

// hypothesis is a possible cause, with a test that confirms or rejects it. The evidence is the
// observation in either case.
type hypothesis struct {
	cause string
	test  func(ctx context.Context, e *Env) (confirmed bool, evidence string, err error)
	// remedy fixes the cause and describes the fix, or returns advice.
	remedy func(ctx context.Context, e *Env) (fixed bool, done string, err error)
}

// walk tests hypotheses in order and stops at the first that is confirmed. A test that cannot run
// confirms nothing.
func walk(ctx context.Context, e *Env, list []hypothesis) (Outcome, error) {
	var o Outcome
	for _, h := range list {
		e.Step("hypothesis: %s", h.cause)
		confirmed, evidence, err := h.test(ctx, e)
		if ctx.Err() != nil {
			return Outcome{}, ctx.Err()
		}
		if err != nil {
			confirmed, evidence = false, fmt.Sprintf("the test could not be run: %v", err)
		}
		o.Checked = append(o.Checked, Hypothesis{Cause: h.cause, Confirmed: confirmed, Evidence: evidence})
		if confirmed {
			o.Cause, o.Evidence = h.cause, evidence
			o.Fixed, o.Remedy, err = h.remedy(ctx, e)
			return o, err
		}
	}
	return o, nil
}

// advice is a remedy that a person must carry out.
func advice(text string) func(context.Context, *Env) (bool, string, error) {
	return func(context.Context, *Env) (bool, string, error) { return false, text, nil }
}
