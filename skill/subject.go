package skill

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
)

// subjectError is an error of what is deployed, the checkpoint or the golden file, as against one of the deployment's own work.
type subjectError struct {
	golden bool
	err    error
}

func (e subjectError) Error() string { return e.err.Error() }
func (e subjectError) Unwrap() error { return e.err }

// subjectOf says what is deployed. Paths are absolute: whoever evaluates may do it from another folder.
func subjectOf(ck *checkpoint.Checkpoint, info npu.Info, seqLen int) (Subject, error) {
	c := ck.Config()
	if seqLen == 0 {
		seqLen = min(c.Context, defaultSeqLen)
	}
	if seqLen > c.Context {
		return Subject{}, fmt.Errorf("skill: Options.SeqLen is %d, %s has a context of %d", seqLen, c.Name, c.Context)
	}
	weights, err := weightsHash(ck)
	if err != nil {
		return Subject{}, err
	}
	path, err := filepath.Abs(ck.Path())
	if err != nil {
		return Subject{}, fmt.Errorf("skill: %w", err)
	}
	s := Subject{Model: path, Name: strings.TrimSuffix(filepath.Base(path), ".gguf"), Weights: weights, Config: plan.Identity{Family: c.Family, Layers: c.Layers, Hidden: c.Hidden, Heads: c.Heads,
		KVHeads: c.KVHeads, HeadDim: c.HeadDim, FFN: c.FFN, Vocab: c.Vocab},

		Device: info.Kind, Array: info.Array, SeqLen: seqLen}
	s.Thresholds, err = hashOf(Thresholds())
	return s, err
}

// weightsHash goes through all tensors: about two seconds for a model of a billion BF16 parameters.
func weightsHash(ck *checkpoint.Checkpoint) (string, error) {
	h := sha256.New()
	for _, listed := range ck.Tensors() {
		t, err := ck.Tensor(listed.Name)
		if err != nil {
			return "", fmt.Errorf("skill: %w", err)
		}
		fmt.Fprintf(h, "%q %v %v %d ", t.Name, t.Type, t.Shape, len(t.Data))
		h.Write(t.Data)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// shape is the model in words.
func (s Subject) shape() string {
	c := s.Config
	return fmt.Sprintf("%s (family %s, %d layers, hidden %d, %d heads over %d of %d, FFN %d, vocabulary %d)", s.Name, c.Family, c.Layers, c.Hidden, c.Heads, c.KVHeads, c.HeadDim, c.FFN,
		c.Vocab)
}

// same reports a difference between what is asked for and what the workspace is about. Where the checkpoint lies does not matter; its bytes do.
func (s Subject) same(was Subject) error {
	switch {
	case s.Config != was.Config:
		return fmt.Errorf("it is about %s, and this is %s", was.shape(), s.shape())
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
