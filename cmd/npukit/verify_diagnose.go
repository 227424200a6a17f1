package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/oracle"
)

// A diagnosis takes so many positions in one pass and then so many one by one: enough for patterns
// along positions, few enough that every output of a model of three billion parameters fits in 400
// MB. The pass ends at no multiple of any tile, so that its end is not mistaken for one.
const (
	diagnosedPass  = 39
	diagnosedSteps = 9
)

// find opens the model again, with every output shown, and looks for the first op that is wrong.
func (v *verifier) find(ctx context.Context) (err error) {
	noise, ok := gate.FormatNoise(v.format)
	if !ok {
		return fmt.Errorf("it is not known how much error the number format %s explains", v.format)
	}
	rec := &gate.Recording{Noise: noise}
	options, err := v.model.options()
	if err != nil {
		return err
	}
	options.Tap = rec.Tap
	defer v.app.progress("diagnosing")()
	m, err := model.Open(ctx, v.dev, v.path, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	s := m.NewSession()
	defer func() { err = errors.Join(err, s.Close()) }()
	ids := v.ids[:min(len(v.ids), diagnosedPass+diagnosedSteps)]
	pass := max(1, len(ids)-diagnosedSteps)
	if err := s.Score(ctx, ids[:pass], func(int, []float32) error { return nil }); err != nil {
		return err
	}
	for _, id := range ids[pass:] {
		if _, err := s.Step(ctx, id); err != nil {
			return err
		}
	}
	v.trace, err = rec.Trace(func(tap gate.TapFunc) error {
		return v.ref.Forward(ctx, v.ref.NewState(), ids, &oracle.ForwardOptions{Tap: tap}, nil)
	})
	if err != nil {
		return err
	}
	v.trace.Name = v.result.Model
	d := gate.Diagnose(v.trace)
	v.result.Diagnosis = &d
	return nil
}

// diagnosis is the text about the first wrong op, and about what a diagnosis cannot see.
func (v *verifier) diagnosis() string {
	text := v.result.Diagnosis.String()
	if v.result.Diagnosis.OK() && !v.result.OK {
		text += "  the gates fail all the same, so that the fault is in what showing every output changes: " +
			"programs are then dispatched one by one and no\n" +
			"  buffer is used again within one. Usual causes: a missing sync, a buffer that two programs share, a " +
			"race; or positions beyond the " +
			fmt.Sprint(diagnosedPass+diagnosedSteps) + " that were looked at\n"
	}
	return text
}
