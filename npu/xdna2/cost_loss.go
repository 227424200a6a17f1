package xdna2

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/npukit/npukit/npu/op"
)

// LossKernel is the [Loss] of kernels: the time above the roofline that no other loss explains.
const LossKernel = "kernel below the roofline"

// The other losses.
const (
	lossDispatch  = "dispatch not amortised"
	lossContexts  = "contexts opened again"
	lossBias      = "unfused bias"
	lossQKNorm    = "unfused QK-norm"
	lossPadding   = "padded FLOPs"
	lossTransfers = "transfers"
	lossReload    = "tiles read again"
)

// Loss is a part of a program's time that another mapping or plan could save, at least in part.
type Loss struct {
	Name string
	Time float64 // us per run
	What string  // description for people
}

// Around describes the work around one run of a program.
type Around struct {
	Call   float64 // us for the dispatch: Host.PrefillCall or Host.DecodeCall
	Open   float64 // us to open its hardware context
	Write  int     // bytes written before the run
	Read   int     // bytes read after it
	Useful float64 // FLOPs of the model, without padded dimensions; 0 means all FLOPs of the program
}

// Losses returns the losses of a run, largest first, without those below one percent of the whole.
// Losses may overlap, so they do not add up.
func (c *Clock) Losses(p ProgramCost, around Around) []Loss {
	transfers := c.Host.Write(around.Write) + c.Host.Read(around.Read)
	var starts, bias, qknorm, padding, reload, gemm, gemmFLOPs, kernels float64
	worst, slowest := 0.0, ""
	for _, l := range p.Launches {
		starts += l.Start
		named := bias + qknorm + padding + reload // losses listed separately
		for _, o := range l.Ops {
			switch kind := o.Op.(type) {
			case op.Add:
				if kind.Broadcast && len(l.Ops) == 1 {
					bias += l.Time
				}
			case op.RMSNorm:
				if kind.Heads > 0 && len(l.Ops) == 1 {
					qknorm += l.Time
				}
			case op.MatMul:
				padding += o.Padding * l.Time
				gemm += l.Time
				gemmFLOPs += o.FLOPs
			}
			if l.Bound == boundMemory && o.Traffic > o.Bytes {
				reload += (1 - o.Bytes/o.Traffic) * o.Memory
			}
		}
		named = bias + qknorm + padding + reload - named
		if below := l.Time - l.Start - l.roofline() - named; below > 0 {
			if kernels += below; below > worst {
				worst, slowest = below, l.reached()
			}
		}
	}
	if around.Useful > 0 && around.Useful < p.FLOPs && gemmFLOPs > 0 {
		padding += gemm * min(1, (p.FLOPs-around.Useful)/gemmFLOPs)
	}
	list := []Loss{
		{lossDispatch, around.Call + starts, fmt.Sprintf("one call of %.0f us and the starts of %d launches",
			around.Call, len(p.Launches))},
		{lossContexts, around.Open, "the program's hardware context was closed for another's"},
		{LossKernel, kernels, slowest},
		{lossBias, bias, "launches that only add a bias, which a GEMM's epilogue could add"},
		{lossQKNorm, qknorm, "launches that only normalize q and k per head"},
		{lossPadding, padding, "multiply-adds on rows and columns of padding"},
		{lossTransfers, transfers, fmt.Sprintf("%d bytes written and %d read around the run", around.Write,
			around.Read)},
		{lossReload, reload, "GEMM input tiles that are read from DRAM more than once"},
	}
	total := around.Call + around.Open + p.Run + transfers
	list = slices.DeleteFunc(list, func(l Loss) bool { return !(l.Time >= 0.01*total) })
	slices.SortStableFunc(list, func(a, b Loss) int { return cmp.Compare(b.Time, a.Time) })
	return list
}

// roofline returns the summed roofline time of a launch's ops.
func (l LaunchCost) roofline() float64 {
	t := 0.0
	for _, o := range l.Ops {
		t += o.Roofline.Time
	}
	return t
}

// reached describes how close a launch comes to its roofline.
func (l LaunchCost) reached() string {
	flops, bytes := 0.0, 0.0
	for _, o := range l.Ops {
		flops, bytes = flops+o.FLOPs, bytes+o.Bytes
	}
	return fmt.Sprintf("%s reaches %.2g TFLOP/s and %.2g GB/s, %.0f %% of its roofline",
		cmp.Or(l.Fused, l.Name), flops/l.Time/1e6, bytes/l.Time/1e3,
		100*l.roofline()/l.Time)
}
