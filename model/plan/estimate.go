package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/npu/xdna2"
)

// Estimate is what a plan for the NPU will cost, predicted by a clock: never a measurement. Times are seconds.
type Estimate struct {
	Model        Identity      `json:"model"`
	Device       string        `json:"device"`
	Host         string        `json:"host"` // name of the clock's host profile
	HostNote     string        `json:"host_note"`
	Predicted    bool          `json:"predicted"` // always true: so that nobody takes the figures for measured ones
	SeqLen       int           `json:"seq_len"`   // positions of the prompt, and those that the first generated token attends to
	TTFT         float64       `json:"ttft_s"`    // of a prompt that follows another generation
	TokensPerSec float64       `json:"tokens_per_s"`
	FirstUse     float64       `json:"first_use_s"` // more than TTFT: the first prompt of a process, whose contexts are opened and which wakes the array
	WakeUp       float64       `json:"wake_up_s"`   // more than TTFT: a prompt after the array has been idle for IdleAfter
	IdleAfter    float64       `json:"idle_after_s"`
	ToDecode     float64       `json:"to_decode_s"` // more than another token: the first token behind a prompt, which opens contexts for decode
	Contexts     ContextUse    `json:"contexts"`
	Rho          []Rho         `json:"rho"`
	Prefill      *PassEstimate `json:"prefill"`
	Decode       *PassEstimate `json:"decode"`
}

// ContextUse is how the programs of a plan share the hardware contexts that a host keeps alive. A program whose context is gone is loaded again.
type ContextUse struct {
	Kept    int `json:"kept"`    // by the host's profile
	Prefill int `json:"prefill"` // programs of the array in a prefill
	Decode  int `json:"decode"`  // in a token
	All     int `json:"all"`     // in both: some are the same
}

// Rho is the paper's measure of how well a model uses the array, beside the published Llama-3.2-1B.
type Rho struct {
	Form    string  `json:"form"`
	Prefill float64 `json:"prefill"`
	Decode  float64 `json:"decode"`
}

// PassEstimate is one pass by where its time goes.
type PassEstimate struct {
	Rows       int            `json:"rows"`
	Time       float64        `json:"time_s"`
	Array      float64        `json:"array_s"`     // programs running
	Calls      float64        `json:"calls_s"`     // dispatching them, and making what is not kept between dispatches
	Transfers  float64        `json:"transfers_s"` // buffers written to and read from the device
	HostWork   float64        `json:"host_s"`      // everything else that the host does
	Dispatches int            `json:"dispatches"`
	Launches   int            `json:"launches"`
	Opened     int            `json:"contexts_opened"` // hardware contexts, each of them in Calls
	Steps      []StepEstimate `json:"steps"`           // steps of the same program added up, in the order in which programs first come
	Spans      []Span         `json:"-"`               // what comes when
}

// StepEstimate is what all dispatches of one program in a pass cost.
type StepEstimate struct {
	Program   string  `json:"program"`
	On        string  `json:"on"`
	Count     int     `json:"count"`
	Launches  int     `json:"launches"`                  // of all dispatches
	Opened    int     `json:"contexts_opened,omitempty"` // hardware contexts
	Time      float64 `json:"time_s"`
	Run       float64 `json:"run_s"`
	Call      float64 `json:"call_s"`
	Write     int     `json:"bytes_written"`
	Read      int     `json:"bytes_read"`
	Transfers float64 `json:"transfers_s"`
	FLOPs     float64 `json:"flops"`
	Bytes     float64 `json:"bytes"`      // that the launches must move at least
	Roofline  float64 `json:"roofline_s"` // the least that the array needs for the same work
	Share     float64 `json:"share"`      // of the roofline that Time reaches, 0 to 1
	Bound     string  `json:"bound"`      // "start", "memory", "compute", or "host"
	Loss      string  `json:"loss,omitempty"`
	LossTime  float64 `json:"loss_s,omitempty"` // of Loss, the largest one
	LossWhat  string  `json:"loss_what,omitempty"`
}

// Span is a predicted stretch of time. Times are seconds from the start of the pass.
type Span struct {
	Name     string // "layer.3.o_ffn", or a launch of it
	Category string // "dispatch", "launch", "transfer" or "host"
	Start    float64
	Duration float64
}

// Estimate predicts a plan for the NPU: the time to the first token of a prompt of as many tokens as its largest prefill pass has rows, and the tokens a second behind
// it. Runtime knobs of the plan are priced as they are set.
//
// Both are those of a process that has prompts and generations in turn: where prefill and decode have more programs than the host keeps hardware contexts, a prompt opens
// those of prefill again. What comes only once is told beside: the first prompt of all, the first token behind a prompt, and a prompt after a pause.
func (p *Plan) Estimate(clock *xdna2.Clock) (*Estimate, error) {
	if clock == nil {
		return nil, &OptionError{"clock", nil, "a clock of package xdna2"}
	}
	last := p.Prefill[len(p.Prefill)-1]
	if last.Rows == 0 {
		return nil, fmt.Errorf("plan: the plan is for %s, whose programs take any number of rows: only plans for the NPU can be predicted", p.Device)
	}
	e := &Estimate{Model: p.Model, Device: p.Device, Host: clock.Host.Name, HostNote: clock.Host.Note, Predicted: true, SeqLen: last.Rows, Contexts: p.contextUse(clock.Host)}
	passes, token, err := p.turns(clock, last)
	if err != nil {
		return nil, err
	}
	e.Prefill, e.Decode = passes[2], token
	e.TTFT = e.Prefill.Time
	e.TokensPerSec = 1 / e.Decode.Time
	e.IdleAfter = clock.Host.IdleAfter / 1e6
	e.WakeUp = clock.Host.WakeUp(time.Duration(e.IdleAfter*float64(time.Second))) / 1e6
	e.FirstUse = passes[0].Time - e.TTFT + e.WakeUp
	e.ToDecode = passes[3].Time - e.Decode.Time
	e.Rho, err = p.Rho(e.SeqLen, e.TTFT, e.TokensPerSec)
	return e, err
}

// contextUse counts the programs of the longest prefill and of decode.
func (p *Plan) contextUse(h xdna2.Host) ContextUse {
	last := p.Prefill[len(p.Prefill)-1]
	return ContextUse{h.Contexts, len(arrayPrograms(last)), len(arrayPrograms(p.Decode)), len(arrayPrograms(last, p.Decode))}
}

// arrayPrograms are the programs of passes that run on the array, each once.
func arrayPrograms(passes ...Pass) []string {
	var list []string
	for _, pass := range passes {
		for _, s := range pass.AllSteps() {
			if s.On == OnDevice && !slices.Contains(list, s.Program) {
				list = append(list, s.Program)
			}
		}
	}
	return list
}

// CheckContexts reports a pass with more programs than hardware contexts are kept alive: it runs, but opens contexts again and again. The error is an
// [*xdna2.ResourceError] of rule R-ELF-6. That prefill and decode together have more is no fault: contexts are opened again between them.
func (p *Plan) CheckContexts(a *xdna2.Array) error {
	if a == nil {
		return &OptionError{"a", nil, "an array such as xdna2.NPU2()"}
	}
	for _, pass := range p.Passes() {
		if err := xdna2.CheckContexts(len(arrayPrograms(pass)), a); err != nil {
			name := fmt.Sprintf("prefill of %d rows", pass.Rows)
			if pass.Rows <= 1 {
				name = "decode"
			}
			return fmt.Errorf("plan: %s: %w", name, err)
		}
	}
	return nil
}

// price sets the passes' costs, by which a session chooses between them. A prefill's has what it costs to go there from decode and back.
func (p *Plan) price(clock *xdna2.Clock) error {
	for i := range p.Prefill {
		passes, token, err := p.turns(clock, p.Prefill[i])
		if err != nil {
			return err
		}
		p.Prefill[i].Cost = passes[2].Time + passes[3].Time - token.Time
		p.Decode.Cost = token.Time // behind the longest, which is the last
	}
	return nil
}

// turns prices two prompts in turn with the first token behind each, from a process without contexts on, and then another token.
func (p *Plan) turns(clock *xdna2.Clock, prefill Pass) (passes [4]*PassEstimate, token *PassEstimate, err error) {
	priced := &pricedPrograms{map[string]xdna2.ProgramCost{}, xdna2.NewContexts[string](clock.Host.Contexts)}
	for i := range passes {
		pass, decode := prefill, i%2 == 1
		if decode {
			pass = p.Decode
		}
		if passes[i], err = p.estimatePass(clock, priced, pass, prefill.Rows, decode); err != nil {
			return passes, nil, err
		}
	}
	token, err = p.estimatePass(clock, priced, p.Decode, prefill.Rows, true)
	return passes, token, err
}

// Rho is the paper's measure of a run of the model, measured or predicted: seconds to the first token of so many positions, and tokens a second behind them. It comes in the form
// of the paper's table and in the one that counts the true width of q.
func (p *Plan) Rho(positions int, ttft, tokensPerSec float64) ([]Rho, error) {
	m := p.Model
	run := xdna2.RhoRun{
		Dims: xdna2.RhoDims{Layers: m.Layers, Emb: m.Hidden, Query: m.Heads * m.HeadDim, KV: m.KVHeads * m.HeadDim, FFN: m.FFN},
		Seq:  positions, TTFT: ttft, TokensPerSec: tokensPerSec,
	}
	var list []Rho
	for _, form := range []xdna2.RhoForm{xdna2.RhoAsPublished, xdna2.RhoTrueWidth} {
		prefill, decode, err := xdna2.Rho(run, xdna2.RhoReference(), form)
		if err != nil {
			return nil, fmt.Errorf("plan: %w", err)
		}
		list = append(list, Rho{form.String(), prefill, decode})
	}
	return list, nil
}

// pricedPrograms is what passes behind each other share: what a run of a program costs, and which have a hardware context.
type pricedPrograms struct {
	costs map[string]xdna2.ProgramCost
	alive *xdna2.Contexts[string]
}

// pricing adds up one pass. Times inside are microseconds, as the clock's.
type pricing struct {
	plan   *Plan
	clock  *xdna2.Clock
	decode bool
	keys   int // positions that decode attention reads
	pass   Pass
	*pricedPrograms
	sides   map[string]*side
	groups  map[groupKey]*StepEstimate
	losses  map[groupKey]map[string]xdna2.Loss // by name, in seconds
	at      float64                            // end of what has been priced
	out     *PassEstimate
	hostRow int // rows of a host step
}

// groupKey names the steps that an estimate adds up: those of a program on one side.
type groupKey struct {
	on, program string
}

// side says which side has the newest bytes of a value: the executor's bookkeeping, without buffers.
type side struct {
	hostWrote, hostHas int
	deviceWrote        bool
}

// estimatePass prices one pass behind those that priced has seen.
func (p *Plan) estimatePass(clock *xdna2.Clock, priced *pricedPrograms, pass Pass, keys int, decode bool) (*PassEstimate, error) {
	pr := &pricing{plan: p, clock: clock, decode: decode, keys: keys, pass: pass, hostRow: pass.Rows, pricedPrograms: priced,
		sides: map[string]*side{}, groups: map[groupKey]*StepEstimate{}, losses: map[groupKey]map[string]xdna2.Loss{}, out: &PassEstimate{Rows: pass.Rows}}
	for _, v := range p.Values {
		pr.sides[v.Name] = &side{}
		if isHostFilled(v.Name) {
			pr.sides[v.Name].hostWrote = v.Type.Bytes((op.Size{Rows: pass.Rows, Picks: 1}).Elements(v.Shape))
		}
	}
	once, layer := clock.Host.PrefillOnce, clock.Host.PrefillLayer
	if decode {
		once, layer = clock.Host.DecodeOnce, 0
	}
	pr.hostWork("tokens, embedding, final norm", once)
	pr.hostWork("the runtime's own work between dispatches", float64(p.Model.Layers)*layer)
	for _, s := range pass.AllSteps() {
		price := pr.device
		if s.On == OnHost {
			price = pr.host
		}
		if err := price(s); err != nil {
			return nil, fmt.Errorf("plan: step %s: %w", s.Name, err)
		}
	}
	return pr.finish(), nil
}

// span notes a stretch of so many microseconds and moves on.
func (pr *pricing) span(name, category string, us float64) {
	if us > 0 {
		pr.out.Spans = append(pr.out.Spans, Span{name, category, pr.at / 1e6, us / 1e6})
		pr.at += us
	}
}

func (pr *pricing) hostWork(name string, us float64) {
	pr.out.HostWork += us / 1e6
	pr.span(name, "host", us)
}

// group is the estimate of a step's program.
func (pr *pricing) group(s Step) *StepEstimate {
	key := groupKey{on: s.On, program: s.Program}
	g := pr.groups[key]
	if g == nil {
		g = &StepEstimate{Program: s.Program, On: s.On}
		pr.groups[key], pr.losses[key] = g, map[string]xdna2.Loss{}
		pr.out.Steps = append(pr.out.Steps, StepEstimate{Program: s.Program, On: s.On}) // keeps the order; filled in by finish
	}
	g.Count++
	return g
}

// device prices a dispatch: what has to be written before it, the call, the run.
func (pr *pricing) device(s Step) error {
	host, runtime := pr.clock.Host, pr.plan.Runtime
	program := pr.plan.Program(s.Program)
	cost, ok := pr.costs[s.Program]
	if !ok {
		var err error
		if cost, err = pr.clock.Program(program, op.Size{}); err != nil {
			return err
		}
		pr.costs[s.Program] = cost
	}
	write, all, syncs := 0, 0, 0
	for i, a := range program.Args {
		bytes := 0
		if a.Kind != npu.State {
			bytes = a.Type.Bytes((op.Size{}).Elements(a.Shape))
		}
		all += bytes
		switch a.Kind {
		case npu.In:
			v := pr.sides[s.Args[i].Value]
			n := v.hostWrote
			if host.WritesInputs || !runtime.SkipTransfers {
				n = bytes
			}
			if n > 0 {
				write, syncs = write+n, syncs+1
			}
			v.hostWrote = 0
		case npu.Out:
			*pr.sides[s.Args[i].Value] = side{deviceWrote: true}
			if host.WritesInputs && hasAttention(program) || !runtime.SkipTransfers {
				write, syncs = write+bytes, syncs+1 // the reference writes zeros there
			}
		case npu.Const, npu.Scratch:
			if !runtime.SkipTransfers {
				write, syncs = write+bytes, syncs+1
			}
		}
	}
	call := host.PrefillCall
	if pr.decode {
		call = host.DecodeCall
	}
	call += host.Step
	if !runtime.BufferReuse {
		call += host.Allocate(all)
	}
	g := pr.group(s)
	open := 0.0
	switch {
	case !runtime.ContextReuse:
		open = host.DeviceOpen + host.ContextLoad
	case pr.alive.Use(s.Program):
		open = host.ContextLoad
	}
	if open > 0 {
		g.Opened++
		pr.out.Opened++
	}
	transfers := host.Write(write) + float64(syncs)*host.SyncCall
	g.Launches += len(cost.Launches)
	g.Run += cost.Run / 1e6
	g.Call += (open + call) / 1e6
	g.Write += write
	g.Transfers += transfers / 1e6
	g.FLOPs += cost.FLOPs
	g.Bytes += cost.Bytes
	g.Roofline += cost.Roofline / 1e6
	g.Bound = string(cost.Bound)
	for _, l := range pr.clock.Losses(cost, xdna2.Around{Call: call, Open: open, Write: write}) {
		sum := pr.losses[groupKey{on: s.On, program: s.Program}]
		l.Time = sum[l.Name].Time + l.Time/1e6
		sum[l.Name] = l
	}
	pr.span(s.Name+": sync", "transfer", transfers)
	pr.span(s.Name+": open its context", "host", open)
	pr.span(s.Name+": call", "host", call)
	started := pr.at
	pr.span(s.Name+" "+s.Program, "dispatch", cost.Run)
	for _, l := range cost.Launches {
		pr.out.Spans = append(pr.out.Spans, Span{s.Name + "." + cmp.Or(l.Fused, l.Name), "launch", started / 1e6, l.Time / 1e6})
		started += l.Time
	}
	pr.out.Dispatches++
	pr.out.Launches += len(cost.Launches)
	return nil
}

func hasAttention(p *npu.Program) bool {
	return slices.ContainsFunc(p.Launches, func(l npu.Launch) bool { return l.Op.Kind() == "Attention" })
}

// host prices a step on the host: what it reads from the device, and those of its ops that are not part of the profile's lump sums.
func (pr *pricing) host(s Step) error {
	host := pr.clock.Host
	program := pr.plan.Program(s.Program)
	size := op.Size{Rows: pr.hostRow, Picks: 1, Pos: 0}
	if pr.decode {
		size.Pos = pr.keys
	}
	read, syncs := 0, 0
	for i, a := range program.Args {
		switch a.Kind {
		case npu.In:
			v := pr.sides[s.Args[i].Value]
			if n := a.Type.Bytes(size.Elements(a.Shape)); v.deviceWrote && n > v.hostHas {
				read, syncs = read+n-v.hostHas, syncs+1
				v.hostHas = n
			}
		case npu.Out:
			*pr.sides[s.Args[i].Value] = side{hostWrote: a.Type.Bytes(size.Elements(a.Shape))}
		}
	}
	us := host.Step
	for _, l := range program.Launches {
		us += pr.hostOp(program, l, size)
	}
	g := pr.group(s)
	transfers := host.Read(read) + float64(syncs)*host.SyncCall
	g.Read += read
	g.Transfers += transfers / 1e6
	g.Run += us / 1e6
	g.Bound = "host"
	pr.out.HostWork += us / 1e6
	pr.span(s.Name+": sync", "transfer", transfers)
	pr.span(s.Name+" "+s.Program, "host", us)
	return nil
}

// hostOp prices one op on the host. What a profile has as a lump sum for each layer or pass (embedding, norms, picking, the logits) costs nothing here.
func (pr *pricing) hostOp(p *npu.Program, l npu.Launch, size op.Size) float64 {
	host := pr.clock.Host
	moved := func(i int) int {
		shape, _ := p.Shape(l.Args[i])
		return p.Args[l.Args[i].Arg].Type.Bytes(size.Elements(shape))
	}
	switch o := l.Op.(type) {
	case op.Permute:
		return host.Permute(moved(0))
	case op.KVWrite:
		return host.Permute(moved(0))
	case op.Attention:
		if o.Cached && pr.decode {
			return host.Attention(o.Heads, o.KVHeads, o.HeadDim, pr.keys)
		}
		return host.Compute(o.FLOPs(size), 0)
	case op.MatMul:
		return host.Compute(o.FLOPs(size), moved(1))
	case op.SiLUMul:
		if pr.decode {
			return host.SplitLayer
		}
		return host.Permute(2 * moved(0))
	}
	return 0
}

// finish adds up the groups.
func (pr *pricing) finish() *PassEstimate {
	out := pr.out
	for i := range out.Steps {
		key := groupKey{on: out.Steps[i].On, program: out.Steps[i].Program}
		g := *pr.groups[key]
		for _, name := range slices.Sorted(maps.Keys(pr.losses[key])) {
			if l := pr.losses[key][name]; l.Time > g.LossTime {
				g.Loss, g.LossTime, g.LossWhat = name, l.Time, l.What
			}
		}
		g.Time = g.Run + g.Call + g.Transfers
		if g.On == OnDevice {
			out.Array += g.Run
			g.Share = g.Roofline / g.Time
		}
		out.Calls += g.Call
		out.Transfers += g.Transfers
		out.Steps[i] = g
	}
	out.Time = out.Array + out.Calls + out.Transfers + out.HostWork
	return out
}
