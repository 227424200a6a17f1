// Package gates has the conditions that end the phases of a deployment: kernels alone, one block,
// the whole model. Each gate computes its own evidence.
package gates

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/skill/internal/journal"
)

// Gate is a condition at the end of a phase.
type Gate struct {
	Name    string
	Subject string // the hash of a kernel; "" for a gate of the whole plan
	// Run runs the gate. Its error means that the gate could not be run; the findings are in the
	// verdict.
	Run func(ctx context.Context, bench *Bench) (Verdict, error)
}

// Verdict is a gate's report. The reports of package gate are verdicts.
type Verdict interface {
	fmt.Stringer
	json.Marshaler
	OK() bool
	Err() error // nil if OK
}

// Check runs the gate. A gate that returns neither a verdict nor an error is an error.
func (g Gate) Check(ctx context.Context, bench *Bench) (Verdict, error) {
	v, err := g.Run(ctx, bench)
	if err == nil && v == nil {
		err = errors.New("its Check has returned neither a verdict nor an error")
	}
	return v, err
}

// OfReference returns the gates of the oracle and the checkpoint.
func OfReference(bench *Bench) []Gate {
	list := []Gate{
		{Name: journal.GateArchitecture, Run: checkArchitecture},
		{Name: journal.GateWeights, Run: checkWeights},
		{Name: journal.GateOracle, Run: checkOracle},
	}
	if bench.Golden != nil {
		list = append(list, Gate{Name: journal.GateOracleGolden, Run: checkOracleGolden})
	}
	return list
}

// OfBlock returns the gates of one decoder layer.
func OfBlock() []Gate { return []Gate{Block(), BlockOps(), BlockFar()} }

// Block is the gate of the contribution of layer 0 to the residual stream.
func Block() Gate { return Gate{Name: journal.GateBlock, Run: checkBlock} }

// BlockOps is the gate of each op of layer 0 on its own.
func BlockOps() Gate { return Gate{Name: journal.GateBlockOps, Run: checkBlockOps} }

// BlockFar is the gate of layer 0 at the last positions of a session.
func BlockFar() Gate { return Gate{Name: journal.GateBlockFar, Run: checkBlockFar} }

// OfModel returns the gates of the whole model.
func OfModel(bench *Bench) []Gate {
	list := []Gate{
		{Name: journal.GateLogits, Run: checkLogits},
		{Name: journal.GatePaper, Run: checkPaper},
		{Name: journal.GateGreedy, Run: checkGreedy},
		{Name: journal.GateDeterminism, Run: checkDeterminism},
	}
	if bench.Golden != nil {
		list = append(list, Gate{Name: journal.GateGolden, Run: checkGolden})
	}
	return list
}

// Cheap returns the gates of a change to a plan: the kernels that are new in it, the logits of a
// short text, and the block if kernels are fused, since those cannot be tried alone. The gates of
// the whole model follow at the end of the phase.
func Cheap(bench *Bench) ([]Gate, error) {
	list, err := OfKernels(bench)
	if err != nil {
		return nil, err
	}
	p, err := bench.Plan()
	if err != nil {
		return nil, err
	}
	fused := slices.ContainsFunc(p.Programs, func(q *npu.Program) bool {
		return slices.ContainsFunc(q.Launches, func(l npu.Launch) bool { return l.Mapping.Fused != "" })
	})
	if fused {
		list = append(list, Block())
	}
	return append(list, Gate{Name: journal.GatePaper, Run: checkPaper}), nil
}
