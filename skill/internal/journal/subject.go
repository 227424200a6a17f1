package journal

import (
	"errors"
	"fmt"
)

// shape is the model in words.
func (s Subject) Shape() string {
	c := s.Config
	return fmt.Sprintf("%s (family %s, %d layers, hidden %d, %d heads over %d of %d, FFN %d, vocabulary %d)", s.Name, c.Family, c.Layers, c.Hidden, c.Heads, c.KVHeads, c.HeadDim, c.FFN,
		c.Vocab)
}

// same reports a difference between what is asked for and what the workspace is about. Where the checkpoint lies does not matter; its bytes do.
func (s Subject) Same(was Subject) error {
	switch {
	case s.Config != was.Config:
		return fmt.Errorf("it is about %s, and this is %s", was.Shape(), s.Shape())
	case s.Weights != was.Weights:
		return fmt.Errorf("it is about %s with other weights (SHA-256 %.12s, these have %.12s)", was.Name, was.Weights, s.Weights)
	case s.Device != was.Device || s.Array != was.Array:
		return fmt.Errorf("it is about device %s, this is %s", was.Device, s.Device)
	case s.SeqLen != was.SeqLen:
		return fmt.Errorf("it is about %d positions, now %d are asked for", was.SeqLen, s.SeqLen)
	case s.GoldenSum != was.GoldenSum:
		return fmt.Errorf("it was begun with other reference outputs (golden file %q)", was.Golden)
	case s.Thresholds != was.Thresholds:
		return errors.New("it was begun by an npukit with other thresholds")
	}
	return nil
}

// Reference says in a sentence what the oracle itself was held to: the outputs of another
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
