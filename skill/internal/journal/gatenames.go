package journal

import (
	"strings"
)

// Names of the built-in gates.
const (
	GateArchitecture = "architecture"
	GateWeights      = "weights"
	GateOracle       = "oracle"
	GateOracleGolden = "oracle-golden"
	GateKernel       = "kernel"
	GateBlock        = "block"
	GateBlockOps     = "block-ops"
	GateBlockFar     = "block-far"
	GateLogits       = "logits"
	GatePaper        = "paper"
	GateGreedy       = "greedy"
	GateDeterminism  = "determinism"
	GateGolden       = "golden"
	GateTried        = "tried"
	GatePlanFile     = "plan-file"
	GateEvaluation   = "evaluation"
)

// GateNames returns the names of the built-in gates.
func GateNames() []string {
	return []string{GateArchitecture, GateWeights, GateOracle, GateOracleGolden, GateKernel, GateBlock, GateBlockOps,
		GateBlockFar, GateLogits, GatePaper, GateGreedy,
		GateDeterminism, GateGolden, GateTried, GatePlanFile, GateEvaluation}
}

// IsKernelGate reports whether a gate is one of a kernel.
func IsKernelGate(name string) bool { return strings.HasPrefix(name, GateKernel+"/") }
