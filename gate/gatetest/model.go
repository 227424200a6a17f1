package gatetest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/npu"
)

// Model is a model on which the model gates, and adversaries under them, are tried.
type Model struct {
	// Open opens the model on a device and returns a scorer with an empty cache, and a function that
	// closes both; nil if there is nothing to close. Sessions of package model are scorers.
	Open func(ctx context.Context, dev npu.Device) (s gate.Scorer, close func() error, err error)

	Reference  gate.Scorer     // the oracle
	IDs        []int32         // scored from position 0 on: 8 or more, and not all the same
	Tokens     int             // that Greedy generates; 0 means 32
	Thresholds gate.Thresholds // of the device's number format
}

// ModelReport is what the model gates found.
type ModelReport struct {
	Logits      gate.LogitsReport      `json:"logits"`
	Greedy      gate.GreedyReport      `json:"greedy"`
	Determinism gate.DeterminismReport `json:"determinism"`
}

// Reasons are those of a gate, by its name here.
func (r ModelReport) Reasons(name string) []gate.Reason {
	switch name {
	case GateLogits:
		return r.Logits.Reasons
	case GateGreedy:
		return r.Greedy.Reasons
	case GateDeterminism:
		return r.Determinism.Reasons
	}
	return nil
}

// Err is nil when all gates pass, and else has the reasons and wraps [gate.ErrFailed].
func (r ModelReport) Err() error {
	return errors.Join(r.Logits.Err(), r.Greedy.Err(), r.Determinism.Err())
}

// promptLen is how many of the ids are the prompt that Greedy continues: short, so that most of what it sees comes from decoding.
const promptLen = 4

// CheckModel runs the model gates over a model on a device, each on a model freshly opened: a gate is to find a fault by itself, and not because of what another
// left behind.
func CheckModel(ctx context.Context, dev npu.Device, m Model) (ModelReport, error) {
	var r ModelReport
	if err := needDevice(dev); err != nil {
		return r, err
	}
	if m.Open == nil || m.Reference == nil || len(m.IDs) < 2*promptLen {
		return r, badOption("m", "a Model needs Open, Reference and at least %d IDs, and has %d IDs", 2*promptLen, len(m.IDs))
	}
	tokens := m.Tokens
	if tokens == 0 {
		tokens = 32
	}
	// The second prompt is shorter, so that the first one's keys lie behind it, and begins otherwise.
	other := slices.Clone(m.IDs[:len(m.IDs)*2/3])
	slices.Reverse(other)
	for _, g := range []struct {
		name string
		run  func(s gate.Scorer) error
	}{
		{GateLogits, func(s gate.Scorer) (err error) {
			r.Logits, err = gate.Teacher(ctx, s, m.Reference, m.IDs, m.Thresholds)
			return err
		}},
		{GateGreedy, func(s gate.Scorer) (err error) {
			r.Greedy, err = gate.Greedy(ctx, s, m.Reference, m.IDs[:promptLen], tokens, 0)
			return err
		}},
		{GateDeterminism, func(s gate.Scorer) (err error) {
			r.Determinism, err = gate.Determinism(ctx, s, m.IDs, other)
			return err
		}},
	} {
		s, closeModel, err := m.Open(ctx, dev)
		if err == nil {
			err = g.run(s)
			if closeModel != nil {
				err = errors.Join(err, closeModel())
			}
		}
		if err != nil {
			return r, fmt.Errorf("gatetest: %s: %w", g.name, err)
		}
	}
	return r, nil
}

// CheckModelAdversaries proves that the model gates catch what they are meant to on a device: the model passes all of them on the device as it is, and fails
// those meant for each adversary on the device wrapped in it. For all of them the model must have biases and a layer 1, and steps named as package model names
// them. The list has every adversary under every model gate; the error says which were not caught.
func CheckModelAdversaries(ctx context.Context, dev npu.Device, m Model) ([]Caught, error) {
	honest, err := CheckModel(ctx, dev, m)
	if err == nil {
		err = honest.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("gatetest: the device itself does not pass, so that nothing follows from what else does not: %w", err)
	}
	var list []Caught
	var errs []error
	for _, a := range Adversaries() {
		r, err := CheckModel(ctx, a.Wrap(dev, nil), m)
		if err != nil {
			return list, fmt.Errorf("gatetest: adversary %q: %w", a.Name, err)
		}
		for _, name := range []string{GateLogits, GateGreedy, GateDeterminism} {
			c := Caught{Adversary: a, Gate: name, On: "the model", Reasons: r.Reasons(name)}
			list = append(list, c)
			errs = append(errs, c.Err())
		}
	}
	return list, errors.Join(errs...)
}
