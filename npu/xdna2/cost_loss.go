package xdna2

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/npukit/npukit/npu/op"
)

// Names of losses.
const (
	LossDispatch  = "dispatch not amortised"
	LossBias      = "unfused bias"
	LossQKNorm    = "unfused QK-norm"
	LossPadding   = "padded FLOPs"
	LossTransfers = "transfers"
	LossReload    = "tiles read again"
)

// Loss is a part of a program's time that another mapping or plan could save, at least in part.
type Loss struct {
	Name string
	Time float64 // us a run
	What string  // for people: what it consists of
}

// Around is what surrounds one run of a program.
type Around struct {
	Call   float64 // us: the dispatch, Host.PrefillCall or Host.DecodeCall
	Write  int     // bytes written before the run
	Read   int     // bytes read after it
	Useful float64 // FLOPs that the model asks for, without padded dimensions; 0 means all that the program does
}

// Losses names where a run's time goes beyond the work, largest first. Losses below one percent of the whole are not listed; they may
// overlap, so that they do not add up.
func (c *Clock) Losses(p ProgramCost, around Around) []Loss {
	transfers := c.Host.Write(around.Write) + c.Host.Read(around.Read)
	var starts, bias, qknorm, padding, reload, gemm, gemmFLOPs float64
	for _, l := range p.Launches {
		starts += l.Start
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
			if l.Bound == BoundMemory && o.Traffic > o.Bytes {
				reload += (1 - o.Bytes/o.Traffic) * o.Memory
			}
		}
	}
	if around.Useful > 0 && around.Useful < p.FLOPs && gemmFLOPs > 0 {
		padding += gemm * min(1, (p.FLOPs-around.Useful)/gemmFLOPs)
	}
	list := []Loss{
		{LossDispatch, around.Call + starts, fmt.Sprintf("one call of %.0f us and the starts of %d launches", around.Call, len(p.Launches))},
		{LossBias, bias, "launches that only add a bias, which a GEMM's epilogue could add"},
		{LossQKNorm, qknorm, "launches that only normalise q and k head by head"},
		{LossPadding, padding, "multiply-adds on rows and columns of padding"},
		{LossTransfers, transfers, fmt.Sprintf("%d bytes written and %d read around the run", around.Write, around.Read)},
		{LossReload, reload, "tiles of a GEMM's inputs that go through the DDR more than once"},
	}
	total := around.Call + p.Run + transfers
	list = slices.DeleteFunc(list, func(l Loss) bool { return !(l.Time >= 0.01*total) })
	slices.SortStableFunc(list, func(a, b Loss) int { return cmp.Compare(b.Time, a.Time) })
	return list
}
