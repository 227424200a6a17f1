package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/gate/golden"
	"github.com/npukit/npukit/internal/defect"
	"github.com/npukit/npukit/npu/cpu"
)

// Each defect of the catalogue, injected into the CPU device, fails the gates, and the diagnosis
// names its op.
func TestVerifySeededDefects(t *testing.T) {
	dev, err := cpu.Open(&cpu.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}()
	all := defect.All()
	if len(all) < 20 {
		t.Fatalf("the catalogue has only %d defects", len(all))
	}
	for _, activations := range []string{"f32", "bf16"} {
		placed, tried := 0, 0
		for _, d := range all {
			if d.Precise && activations != "f32" {
				continue // the catalogue marks it as invisible after rounding
			}
			tried++
			t.Run(activations+"/"+d.Name, func(t *testing.T) {
				file, err := golden.Read(goldenOf(d.Model))
				if err != nil {
					t.Fatal(err)
				}
				var out bytes.Buffer
				v := &verifier{app: &app{out: &out, err: io.Discard}, path: tiny(d.Model), positions: 256, file: file,
					diagnose: true}
				v.model.activations = activations
				err = v.on(defect.With(context.Background(), d), defect.Wrap(dev))
				if !errors.Is(err, errVerify) || v.result.OK {
					t.Errorf("%s passes the gates (%v):\n%s", d.Description, err, out.String())
				}
				for _, g := range v.result.Gates {
					if g.Of == "oracle" && !g.OK {
						t.Errorf("the oracle fails too: %v", g.Report)
					}
				}
				if f := v.result.Diagnosis.Findings; len(f) > 0 && f[0].Tap == d.Seen {
					placed++
				} else {
					t.Errorf("%s: should be found at %s\n%s", d.Description, d.Seen, out.String())
				}
			})
		}
		t.Logf("%s: %d of %d defects are found at the right op", activations, placed, tried)
	}
}

// If the gates fail while every op is right, the text lists the faults that the taps hide.
func TestVerifyFaultThatTapsHide(t *testing.T) {
	right := gate.Diagnosis{Name: "m", Clean: true, Taps: 9, Checked: true}
	for ok, want := range map[bool]bool{true: false, false: true} {
		v := &verifier{result: verifyResult{OK: ok, Diagnosis: &right}}
		if got := strings.Contains(v.diagnosis(), "a missing sync"); got != want {
			t.Errorf("gates pass: %v, the text mentions syncs: %v\n%s", ok, got, v.diagnosis())
		}
	}
}
