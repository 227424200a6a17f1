// Package subject opens the subject of a deployment: a checkpoint, its oracle and its reference
// outputs.
package subject

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/npukit/npukit/gate/golden"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/oracle"
	"github.com/npukit/npukit/skill/internal/gates"
	"github.com/npukit/npukit/skill/internal/journal"
)

// Error is an error of the checkpoint or of the golden file, and not of the deployment's own work.
type Error struct {
	Golden bool
	Err    error
}

func (e Error) Error() string { return e.Err.Error() }
func (e Error) Unwrap() error { return e.Err }

// of returns the subject of a checkpoint on a device. Its paths are absolute, since an evaluator
// may run in another folder.
func of(ck *checkpoint.Checkpoint, info npu.Info, seqLen int) (journal.Subject, error) {
	c := ck.Config()
	if seqLen == 0 {
		seqLen = min(c.Context, DefaultSeqLen)
	}
	if seqLen > c.Context {
		return journal.Subject{}, fmt.Errorf("skill: Options.SeqLen is %d, %s has a context of %d", seqLen, c.Name,
			c.Context)
	}
	weights, err := weightsHash(ck)
	if err != nil {
		return journal.Subject{}, err
	}
	path, err := filepath.Abs(ck.Path())
	if err != nil {
		return journal.Subject{}, fmt.Errorf("skill: %w", err)
	}
	s := journal.Subject{Model: path, Name: strings.TrimSuffix(filepath.Base(path), ".gguf"), Weights: weights,
		Config: plan.Identity{Family: c.Family, Layers: c.Layers, Hidden: c.Hidden, Heads: c.Heads,
			KVHeads: c.KVHeads, HeadDim: c.HeadDim, FFN: c.FFN, Vocab: c.Vocab},

		Device: info.Kind, Array: info.Array, SeqLen: seqLen}
	s.Thresholds, err = journal.Hash(gates.Thresholds())
	return s, err
}

// weightsHash hashes all tensors. That takes about two seconds for a billion BF16 parameters.
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

// DefaultSeqLen is the number of positions of a session, if the model's context is not shorter.
const DefaultSeqLen = 2048

// Opened is a checkpoint that is open, with its references.
type Opened struct {
	Checkpoint *checkpoint.Checkpoint
	Oracle     *oracle.Model
	Golden     *golden.File // nil without one
	Subject    journal.Subject
}

// Open opens the checkpoint at path for a device, and its reference outputs: the file asked, or
// those that are found for the checkpoint if asked is "". An error about the checkpoint or the
// golden file is an [Error]. If Open fails, Checkpoint may be open.
func Open(path string, info npu.Info, seqLen int, asked string) (o Opened, err error) {
	if o.Checkpoint, err = checkpoint.Open(path, nil); err != nil {
		err = fmt.Errorf("skill: phase %s, gate %s: %w", journal.Reference.Title(), journal.GateArchitecture, err)
		return o, Error{Err: err}
	}
	if o.Oracle, err = oracle.Open(o.Checkpoint); err != nil {
		return o, Error{Err: err}
	}
	if o.Subject, err = of(o.Checkpoint, info, seqLen); err != nil {
		return o, Error{Err: err}
	}
	file, err := goldenOf(o.Checkpoint.Path(), asked, o.Subject.Weights)
	if err != nil {
		return o, err
	}
	if o.Golden, err = addGolden(&o.Subject, o.Checkpoint.Config(), file); err != nil {
		return o, Error{Golden: true, Err: err}
	}
	return o, nil
}
