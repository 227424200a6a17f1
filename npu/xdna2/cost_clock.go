package xdna2

import (
	"fmt"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// Deployed says how kernels inside a program compare with the same kernels alone.
type Deployed struct {
	Note string

	Factor    float64 // time in a program over time alone, for kernels that work on many rows
	SeqFirst  float64 // the same for FlashAttention; alone it is measured head first
	HeadFirst float64
	Launch    float64 // us: a launch that works on one row, whatever its kernel
	Stream    float64 // GB/s at which launches of one row go through their weights
}

// DeployedAPriori comes from published figures of single programs: nothing in it is fitted to whole models.
func DeployedAPriori() Deployed {
	return Deployed{
		Note:      "sums of standalone rows against programs of Llama-3.2-1B and -3B and of SmolVLA (mlir-air e972f2942)",
		Factor:    1.09, // rms_gemms_rope 6.5 ms against 5.99, o_ffn 39.8 against 36.2
		SeqFirst:  1.25, // Llama-3.2-1B 20.1 ms against 15.75, SmolLM2 22.0 with its transfers against 16.9
		HeadFirst: 1.16, // SmolVLA 2.80 ms against 2.49, Qwen2.5-3B in 4 bits 22.5 against 19.1
		Launch:    85,
		Stream:    42,
	}
}

// DeployedFitted is fitted to all nine models of the 2026-06 table, together with [HostReference].
func DeployedFitted() Deployed {
	d := DeployedAPriori()
	d.Note = "Factor fitted to the nine models of the 2026-06 table; the rest as published for single programs"
	d.Factor = fittedFactor
	return d
}

// Clock predicts times: of launches, of programs, and with a [Host] of what happens between them. It is not changed by use and safe for
// concurrent use. All its times are microseconds and predictions.
type Clock struct {
	Model    *Model
	Deployed Deployed
	Host     Host
	Registry *Registry // its added rows stand in for the model where they measured the very launch; may be nil
}

// NewClock is a clock with the default model and the deployed factors fitted to the published models.
func NewClock(host Host) *Clock {
	return &Clock{Model: DefaultModel(), Deployed: DeployedFitted(), Host: host}
}

// APriori is a clock of which no constant was fitted to whole models: for testing what the parts alone predict. Two of its terms were
// chosen after whole models had shown the need, though their values come from elsewhere: a factor for FlashAttention by layout, and host
// attention that grows with the head dimension. Without them the nine models' median error is 6.7 instead of 4.9 %.
func APriori() *Clock {
	return &Clock{Model: DefaultModel(), Deployed: DeployedAPriori(), Host: HostAPriori()}
}

// Launch predicts a kernel that runs alone (see [Model.Cost]). Where a deployment has measured this very launch, its time replaces the
// model's, and Note says so.
func (c *Clock) Launch(o op.Op, types []dtype.Type, mapping npu.Mapping, size op.Size) (Cost, error) {
	cost, err := c.Model.Cost(o, types, mapping, size)
	if err != nil || c.Registry == nil || len(c.Registry.Added()) == 0 {
		return cost, err
	}
	out := dtype.BF16
	if len(types) > 0 {
		out = types[len(types)-1]
	}
	whole := mapping.Variant == "fused-cast" && cost.Kernel == GEMM // one row for the multiplication and its cast
	if whole {
		out = dtype.BF16
	}
	rows, err := c.Registry.Find(o, out, mapping, size)
	if err != nil || len(rows) == 0 || rows[0].Record != Own || !rows[0].Standalone() {
		return cost, err
	}
	t := rows[0].Latency
	if whole {
		t = max(cost.Fixed, t-(c.Model.Row(&rows[0])-cost.Time)) // less what the model gives the cast
	}
	cost.Fixed = min(cost.Fixed, t)
	cost.Time = t
	cost.Note = "measured by this deployment: row " + rows[0].ID
	return cost, nil
}

// Work is one op for the array with its mapping. Types as in [Model.Cost].
type Work struct {
	Name    string
	Op      op.Op
	Types   []dtype.Type
	Mapping npu.Mapping
}

// LaunchCost is a physical launch inside a program: one op, or the neighbours that one fused kernel computes.
type LaunchCost struct {
	Name  string
	Fused string // name of the fused kernel
	Ops   []Cost // each op as if it ran alone
	Time  float64
	Start float64 // of Time, what goes into starting it
	Bound Bound
}

// ProgramCost is one dispatch.
type ProgramCost struct {
	Name     string
	Launches []LaunchCost // physical launches
	Run      float64      // on the array, us
	FLOPs    float64
	Bytes    float64 // that the launches must move at least
	Roofline float64 // us: the sum over the launches, which run one after the other
	Bound    Bound   // what most of Run goes into
	In, Out  int     // bytes of the arguments that a caller writes before and reads after, if nothing is kept on the device
	Notes    []string
}

// Share is the part of the roofline that the program reaches on the array.
func (p ProgramCost) Share() float64 { return share(p.Roofline, p.Run) }

// Program predicts one run of p on the array, without the call and the transfers around it (see [Host]). Size gives symbolic dimensions their
// numbers, and the position that a decode attention has reached; programs for the array are otherwise of fixed shape.
func (c *Clock) Program(p *npu.Program, size op.Size) (ProgramCost, error) {
	if p == nil {
		return ProgramCost{}, p.Err()
	}
	var work []Work
	for _, l := range p.Launches {
		w := Work{Name: l.Name, Op: l.Op, Mapping: l.Mapping}
		for _, v := range l.Args {
			if v.Arg < 0 || v.Arg >= len(p.Args) {
				return ProgramCost{}, fmt.Errorf("xdna2: program %s, launch %q: argument %d of %d", p.Name, l.Name, v.Arg, len(p.Args))
			}
			w.Types = append(w.Types, p.Args[v.Arg].Type)
		}
		work = append(work, w)
	}
	cost, err := c.Run(p.Name, work, size)
	if err != nil {
		return ProgramCost{}, err
	}
	for _, a := range p.Args {
		n := a.Type.Bytes(size.Elements(a.Shape))
		switch a.Kind {
		case npu.In:
			cost.In += n
		case npu.Out:
			cost.Out += n
		}
	}
	return cost, nil
}

// Run predicts one dispatch of so much work. Launches follow each other; neighbours of one fused kernel are one launch.
func (c *Clock) Run(name string, work []Work, size op.Size) (ProgramCost, error) {
	p := ProgramCost{Name: name}
	spent := map[Bound]float64{}
	for i := 0; i < len(work); {
		n := 1
		for fused := work[i].Mapping.Fused; fused != "" && i+n < len(work) && work[i+n].Mapping.Fused == fused; {
			n++
		}
		l, err := c.physical(work[i:i+n], size)
		if err != nil {
			return ProgramCost{}, fmt.Errorf("program %s, launch %q: %w", name, work[i].Name, err)
		}
		p.Launches = append(p.Launches, l)
		p.Run += l.Time
		spent[l.Bound] += l.Time
		for _, o := range l.Ops {
			p.FLOPs += o.FLOPs
			p.Bytes += o.Bytes
			p.Roofline += o.Roofline.Time
			if o.Note != "" {
				p.Notes = append(p.Notes, o.Note)
			}
		}
		i += n
	}
	for _, b := range []Bound{BoundStart, BoundMemory, BoundCompute} {
		if p.Bound == "" || spent[b] > spent[p.Bound] {
			p.Bound = b
		}
	}
	return p, nil
}

// physical prices one launch inside a program.
func (c *Clock) physical(work []Work, size op.Size) (LaunchCost, error) {
	l := LaunchCost{Name: work[0].Name, Fused: work[0].Mapping.Fused}
	oneRow, bytes, rest := true, 0.0, 0.0
	for _, w := range work {
		cost, err := c.Launch(w.Op, w.Types, w.Mapping, size)
		if err != nil {
			return l, err
		}
		l.Ops = append(l.Ops, cost)
		oneRow = oneRow && rowsOf(w.Op, size) == 1
		bytes += cost.Bytes
		factor := c.Deployed.Factor
		switch {
		case cost.Kernel == Attention && w.Mapping.Layout == "head-first":
			factor = c.Deployed.HeadFirst
		case cost.Kernel == Attention:
			factor = c.Deployed.SeqFirst
		}
		rest += factor * (cost.Time - cost.Fixed)
		l.Start = max(l.Start, factor*cost.Fixed)
	}
	if oneRow {
		// A token's launches do little besides streaming weights, and in a program they do it better than alone.
		l.Start, rest = c.Deployed.Launch, bytes/(c.Deployed.Stream*1e3)
	}
	l.Time = l.Start + rest
	switch l.Bound = BoundMemory; {
	case l.Start > l.Time/2:
		l.Bound = BoundStart
	case !oneRow:
		memory, compute := 0.0, 0.0
		for _, o := range l.Ops {
			memory, compute = memory+o.Memory, compute+o.Compute
		}
		if compute > memory {
			l.Bound = BoundCompute
		}
	}
	return l, nil
}
