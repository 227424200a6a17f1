package oracle

import (
	"context"
	"testing"

	"github.com/npukit/npukit/npu/op"
)

// Nil checkpoints, states, ops and operands are errors.
func TestNilArguments(t *testing.T) {
	ctx := context.Background()
	for name, call := range map[string]func() error{
		"Open":    func() error { _, err := Open(nil); return err },
		"Forward": func() error { return new(Model).Forward(ctx, nil, []int32{1}, nil, nil) },
		"Compute": func() error { _, err := Compute(ctx, nil, op.Size{}); return err },
		"Compute, operand": func() error {
			_, err := Compute(ctx, op.Add{Rows: 1, Width: 1}, op.Size{}, nil, nil)
			return err
		},
	} {
		if err := call(); err == nil {
			t.Errorf("%s: no error for nil", name)
		}
	}
}
