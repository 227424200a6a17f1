package sim

import (
	"context"
	"testing"

	"github.com/npukit/npukit/npu"
)

// Nil options select the defaults. A nil program, executable or source is an error.
func TestNilArguments(t *testing.T) {
	ctx := context.Background()
	d, err := Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	for name, call := range map[string]func() error{
		"Load":        func() error { _, err := d.Load(ctx, nil); return err },
		"Submit":      func() error { return d.Submit(ctx, []npu.Run{{Name: "r"}}) },
		"Const":       func() error { _, err := d.Const(ctx, npu.Source{Layout: npu.T("w")}); return err },
		"Host().Load": func() error { _, err := d.Host().Load(ctx, nil); return err },
		"Host().Const": func() error {
			_, err := d.Host().Const(ctx, npu.Source{Layout: npu.T("w")})
			return err
		},
		"Host().Submit": func() error {
			return d.Host().Submit(ctx, []npu.Run{{Name: "r"}})
		},
	} {
		if err := call(); err == nil {
			t.Errorf("%s: no error for nil", name)
		}
	}
	if err := d.Submit(ctx, nil); err != nil {
		t.Errorf("empty list of runs: %v", err)
	}
}
