package gatetest

// Names for the tests in package gatetest_test.
const (
	GateKernel      = gateKernel
	GateLogits      = gateLogits
	GateGreedy      = gateGreedy
	GateDeterminism = gateDeterminism
)

type Caught = caught

var (
	Cases          = cases
	Software       = software
	CatchByKernels = catchByKernels
	CatchByModel   = catchByModel
)

// Metrics is metrics.
func (c caught) Metrics() []string { return c.metrics() }
