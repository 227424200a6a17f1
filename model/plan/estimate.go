package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/npukit/npukit/internal/contexts"
	"github.com/npukit/npukit/internal/rho"
	"github.com/npukit/npukit/model/internal/hostvalue"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/npu/xdna2"
)

// Estimate is the predicted cost of a plan for the NPU. It is never a measurement. Times are in
// seconds.
type Estimate struct {
	Model        Identity `json:"model"`
	Device       string   `json:"device"`
	Host         string   `json:"host"` // name of the clock's host profile
	HostNote     string   `json:"host_note"`
	Predicted    bool     `json:"predicted"` // always true
	SeqLen       int      `json:"seq_len"`   // positions of the prompt, and keys of the first decoded token
	TTFT         float64  `json:"ttft_s"`    // of a prompt that follows another generation
	TokensPerSec float64  `json:"tokens_per_s"`
	FirstUse     float64  `json:"first_use_s"` // added to TTFT for the first prompt of a process
	WakeUp       float64  `json:"wake_up_s"`   // added to TTFT after the array has been idle for IdleAfter
	IdleAfter    float64  `json:"idle_after_s"`
	ToDecode     float64  `json:"to_decode_s"` // added to the first token after a prompt

	// Contexts counts hardware contexts. A program whose context the host has dropped is loaded again.
	Contexts struct {
		Kept    int `json:"kept"`    // that the host keeps alive
		Prefill int `json:"prefill"` // programs that a prefill runs on the array
		Decode  int `json:"decode"`  // programs that a decoded token runs on the array
		All     int `json:"all"`     // distinct programs of both
	} `json:"contexts"`

	Rho     []Rho         `json:"rho"`
	Prefill *PassEstimate `json:"prefill"`
	Decode  *PassEstimate `json:"decode"`
}

// Rho is the paper's measure of how well a model uses the array, relative to the published
// Llama-3.2-1B.
type Rho struct {
	Form    string  `json:"form"`
	Prefill float64 `json:"prefill"`
	Decode  float64 `json:"decode"`
}

// PassEstimate is the cost of one pass, split by where the time goes.
type PassEstimate struct {
	Rows       int            `json:"rows"`
	Time       float64        `json:"time_s"`
	Array      float64        `json:"array_s"`     // running programs
	Calls      float64        `json:"calls_s"`     // dispatching, and opening contexts and buffers
	Transfers  float64        `json:"transfers_s"` // syncing buffers
	HostWork   float64        `json:"host_s"`      // all other host work
	Dispatches int            `json:"dispatches"`
	Launches   int            `json:"launches"`
	Opened     int            `json:"contexts_opened"` // hardware contexts; their time is in Calls
	Steps      []StepEstimate `json:"steps"`           // by program, in order of first dispatch
	spans      []span         // timeline
}

// StepEstimate is the cost of all dispatches of one program in a pass.
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
	Bytes     float64 `json:"bytes"`      // least memory traffic of the launches
	Roofline  float64 `json:"roofline_s"` // least time of the array for the same work
	Share     float64 `json:"share"`      // Roofline / Time, 0 to 1
	Bound     string  `json:"bound"`      // "start", "memory", "compute", or "host"
	Loss      string  `json:"loss,omitempty"`
	LossTime  float64 `json:"loss_s,omitempty"` // of Loss, the largest loss
	LossWhat  string  `json:"loss_what,omitempty"`
}

// span is a predicted interval. Times are seconds from the start of the pass.
type span struct {
	name     string // "layer.3.o_ffn", or a launch of it
	category string // "dispatch", "launch", "transfer" or "host"
	start    float64
	duration float64
}

// Estimate predicts the time to first token for a prompt that fills the plan's largest prefill
// pass, and the decoding speed after it. Runtime knobs of the plan are priced as they are set.
//
// Both are for a process that alternates between prompts and generations: if prefill and decode
// have more programs than the host keeps hardware contexts, each prompt opens those of prefill
// again. Separate fields have the costs that occur once: for the first prompt of the process, the
// first token after a prompt, and a prompt after a pause.
func (p *Plan) Estimate(clock *xdna2.Clock) (*Estimate, error) {
	if clock == nil {
		return nil, &OptionError{"clock", nil, "a clock of package xdna2"}
	}
	last := p.Prefill[len(p.Prefill)-1]
	if last.Rows == 0 {
		return nil, fmt.Errorf("plan: the plan is for %s, whose programs take any number of rows: "+
			"only plans for the NPU can be estimated", p.Device)
	}
	e := &Estimate{Model: p.Model, Device: p.Device, Host: clock.Host.Name, HostNote: clock.Host.Note,
		Predicted: true, SeqLen: last.Rows}
	e.Contexts.Kept = clock.Host.Contexts
	e.Contexts.Prefill, e.Contexts.Decode = len(arrayPrograms(last)), len(arrayPrograms(p.Decode))
	e.Contexts.All = len(arrayPrograms(last, p.Decode))
	passes, token, err := p.alternate(clock, last)
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
	e.Rho, err = e.rho()
	return e, err
}

// arrayPrograms returns the distinct programs of the passes that run on the array.
func arrayPrograms(passes ...Pass) []string {
	var list []string
	for _, pass := range passes {
		for _, s := range pass.allSteps() {
			if s.On == OnDevice && !slices.Contains(list, s.Program) {
				list = append(list, s.Program)
			}
		}
	}
	return list
}

// CheckContexts returns an error if a pass has more programs than the array keeps hardware
// contexts: such a pass runs, but opens contexts again and again. The error is an
// [*xdna2.ResourceError] of rule R-ELF-6. It is not an error if only prefill and decode together
// have more, because contexts are opened again just between them.
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

// price sets the costs of the passes, by which a session chooses between them. The cost of a
// prefill includes the switch from decode and back.
func (p *Plan) price(clock *xdna2.Clock) error {
	for i := range p.Prefill {
		passes, token, err := p.alternate(clock, p.Prefill[i])
		if err != nil {
			return err
		}
		p.Prefill[i].Cost = passes[2].Time + passes[3].Time - token.Time
		p.Decode.Cost = token.Time // of the longest prefill, which is the last
	}
	return nil
}

// alternate prices two prompts, each with the first token after it, starting from a process without
// open contexts, and then another token.
func (p *Plan) alternate(clock *xdna2.Clock, prefill Pass) (
	passes [4]*PassEstimate, token *PassEstimate, err error,
) {
	priced := &pricedPrograms{
		map[string]xdna2.ProgramCost{},
		contexts.New[string](clock.Host.Contexts),
	}
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

// rho returns the paper's measure in both forms: that of the paper's table and the one with the true
// width of q.
func (e *Estimate) rho() ([]Rho, error) {
	m := e.Model
	run := rho.Run{
		Dims: rho.Dims{Layers: m.Layers, Emb: m.Hidden,
			Query: m.Heads * m.HeadDim, KV: m.KVHeads * m.HeadDim, FFN: m.FFN},
		Seq: e.SeqLen, TTFT: e.TTFT, TokensPerSec: e.TokensPerSec,
	}
	var list []Rho
	for _, form := range []rho.Form{rho.AsPublished, rho.TrueWidth} {
		prefill, decode, err := rho.Of(run, rho.Reference(), form)
		if err != nil {
			return nil, fmt.Errorf("plan: %w", err)
		}
		list = append(list, Rho{form.String(), prefill, decode})
	}
	return list, nil
}

// pricedPrograms is the state that consecutive passes share: the cost of each program, and the open
// hardware contexts.
type pricedPrograms struct {
	costs map[string]xdna2.ProgramCost
	alive *contexts.LRU[string]
}

// pricing adds up the cost of one pass. Times are in microseconds, as in the clock.
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
	at      float64                            // end of the last span
	out     *PassEstimate
	hostRow int // rows of a host step
}

// groupKey identifies the steps that an estimate adds up: those of one program on one side.
type groupKey struct {
	on, program string
}

// side tracks which side has the newest bytes of a value, as the executor does.
type side struct {
	hostWrote, hostHas int
	deviceWrote        bool
}

// estimatePass prices a pass that runs after those in priced.
func (p *Plan) estimatePass(clock *xdna2.Clock, priced *pricedPrograms, pass Pass, keys int, decode bool) (
	*PassEstimate, error,
) {
	pr := &pricing{plan: p, clock: clock, decode: decode, keys: keys, pass: pass, hostRow: pass.Rows,
		pricedPrograms: priced, sides: map[string]*side{}, groups: map[groupKey]*StepEstimate{},
		losses: map[groupKey]map[string]xdna2.Loss{}, out: &PassEstimate{Rows: pass.Rows}}
	for _, v := range p.Values {
		pr.sides[v.Name] = &side{}
		if hostvalue.Is(v.Name) {
			pr.sides[v.Name].hostWrote = v.Type.Bytes(
				(op.Size{Rows: pass.Rows, Picks: 1}).Elements(v.Shape))
		}
	}
	once, layer := clock.Host.PrefillOnce, clock.Host.PrefillLayer
	if decode {
		once, layer = clock.Host.DecodeOnce, 0
	}
	pr.hostWork("tokens, embedding, final norm", once)
	pr.hostWork("the runtime's own work between dispatches", float64(p.Model.Layers)*layer)
	for _, s := range pass.allSteps() {
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

// span records an interval of us microseconds and advances the time.
func (pr *pricing) span(name, category string, us float64) {
	if us > 0 {
		pr.out.spans = append(pr.out.spans, span{name, category, pr.at / 1e6, us / 1e6})
		pr.at += us
	}
}

func (pr *pricing) hostWork(name string, us float64) {
	pr.out.HostWork += us / 1e6
	pr.span(name, "host", us)
}

// group returns the estimate of a step's program, which it creates for the first step.
func (pr *pricing) group(s Step) *StepEstimate {
	key := groupKey{on: s.On, program: s.Program}
	g := pr.groups[key]
	if g == nil {
		g = &StepEstimate{Program: s.Program, On: s.On}
		pr.groups[key], pr.losses[key] = g, map[string]xdna2.Loss{}
		pr.out.Steps = append(pr.out.Steps,
			StepEstimate{Program: s.Program, On: s.On}) // finish fills it in
	}
	g.Count++
	return g
}

// device prices a dispatch: the transfers before it, the call and the run.
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
				write, syncs = write+bytes, syncs+1 // the reference runtime writes zeros there
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
	g.Bound = cost.Bound
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
		pr.out.spans = append(pr.out.spans,
			span{s.Name + "." + cmp.Or(l.Fused, l.Name), "launch", started / 1e6, l.Time / 1e6})
		started += l.Time
	}
	pr.out.Dispatches++
	pr.out.Launches += len(cost.Launches)
	return nil
}

func hasAttention(p *npu.Program) bool {
	return slices.ContainsFunc(p.Launches, func(l npu.Launch) bool { return l.Op.Kind() == "Attention" })
}

// host prices a host step: the transfers from the device, and the ops that the profile's lump sums
// do not cover.
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

// hostOp returns the cost of one op on the host. It is 0 for the ops that a profile covers with a
// lump sum for each layer or pass: embedding, norms, picking, logits.
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
