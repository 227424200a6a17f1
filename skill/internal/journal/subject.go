package journal

import (
	"errors"
	"fmt"
)

// Shape returns the model's architecture for people.
func (s Subject) Shape() string {
	c := s.Config
	return fmt.Sprintf("%s (family %s, %d layers, hidden %d, %d heads over %d of %d, FFN %d, vocabulary %d)", s.Name,
		c.Family, c.Layers, c.Hidden, c.Heads, c.KVHeads, c.HeadDim, c.FFN,
		c.Vocab)
}

// Same returns an error if a deployment of s cannot use a workspace about was. The path of the
// checkpoint may differ, but not its bytes.
func (s Subject) Same(was Subject) error {
	switch {
	case s.Config != was.Config:
		return fmt.Errorf("it is about %s, not about %s", was.Shape(), s.Shape())
	case s.Weights != was.Weights:
		return fmt.Errorf("it is about %s with other weights (SHA-256 %.12s, these have %.12s)", was.Name, was.Weights,
			s.Weights)
	case s.Device != was.Device || s.Array != was.Array:
		return fmt.Errorf("it is about device %s, not %s", was.Device, s.Device)
	case s.SeqLen != was.SeqLen:
		return fmt.Errorf("it is about %d positions, not %d", was.SeqLen, s.SeqLen)
	case s.GoldenSum != was.GoldenSum:
		return fmt.Errorf("it was started with other reference outputs (golden file %q)", was.Golden)
	case s.Thresholds != was.Thresholds:
		return errors.New("it was started by an npukit with other thresholds")
	}
	return nil
}

// Reference returns a sentence about the reference of the oracle: the outputs of another
// implementation, or nothing.
func (s Subject) Reference() string {
	if s.Golden == "" {
		return "No independent reference: the device is held to npukit's own oracle, and that the oracle agrees with " +
			"another implementation is unproven. scripts/golden.py makes reference outputs with transformers."
	}
	source := ""
	if s.GoldenSource != "" {
		source = ", by " + s.GoldenSource
	}
	return fmt.Sprintf("Independent reference: %s%s (SHA-256 %.12s).", s.Golden, source, s.GoldenSum)
}
