package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/npukit/npukit/internal/output"
	"github.com/npukit/npukit/internal/terminal"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

func infoCommand(a *app) *cobra.Command {
	var flags modelFlags
	var asJSON, check bool
	var planOut string
	cmd := &cobra.Command{
		Use:   "info MODEL",
		Short: "Show a model, its memory, and which op runs where",
		Long: `Info shows a model's architecture, memory, tokenizer, chat template, end tokens and
sampling defaults, and the plan by which a device runs it: which op of which phase runs
where. It does not load the weights. --check reads all of them and names tensors with NaN
or infinite values.`,
		Example: `  npukit info SmolLM2-135M-Instruct-Q4_1
  npukit info ./Qwen3-0.6B --check
  npukit info model.gguf --plan-out plan.json && npukit run model.gguf --plan plan.json "Hello"`,
		Args: arguments("MODEL"),
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) (err error) {
			if planOut != "" {
				if err := output.CanWrite(planOut); err != nil {
					return fmt.Errorf("--plan-out: %w", err)
				}
			}
			plans, err := flags.options()
			if err != nil {
				return err
			}
			path, err := findModel(args[0])
			if err != nil {
				return err
			}
			dev, err := flags.deviceFlags.open()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, dev.Close()) }()
			ck, err := checkpoint.Open(path, &checkpoint.OpenOptions{ReadWeights: flags.readWeights})
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, ck.Close()) }()
			p, err := planFor(ck, dev.Info(), plans)
			if err != nil {
				return err
			}
			out := describe(ck, p, dev.Info())
			if check {
				done := a.progress("reading all weights of " + checkpoint.Name(path))
				bad, err := ck.NonFinite(ctx)
				done()
				if err != nil {
					return err
				}
				bad = append([]string{}, bad...)
				out.NonFinite = &bad
			}
			if planOut != "" {
				data, err := json.MarshalIndent(p, "", "  ")
				if err == nil {
					err = output.File(planOut, append(data, '\n'))
				}
				if err != nil {
					return fmt.Errorf("writing the plan: %w", err)
				}
			}
			if asJSON {
				return output.JSON(a.out, out)
			}
			return out.print(a.out)
		}),
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.Flags().BoolVar(&check, "check", false, "read all weights and report NaN and infinite values")
	cmd.Flags().StringVar(&planOut, "plan-out", "", "write the plan to `FILE`")
	return cmd
}

func planFor(ck *checkpoint.Checkpoint, dev npu.Info, o *model.OpenOptions) (*plan.Plan, error) {
	if o.Plan != nil {
		return o.Plan, o.Plan.Check(ck.Config(), dev)
	}
	return plan.New(ck, dev, o.PlanOptions)
}

// modelInfo is the object that --json prints.
type modelInfo struct {
	Name         string           `json:"name"`
	OwnName      string           `json:"own_name"` // the name in a GGUF file
	Path         string           `json:"path"`
	Format       string           `json:"format"`
	Family       string           `json:"family"`
	Parameters   int64            `json:"parameters"`
	Layers       int              `json:"layers"`
	Hidden       int              `json:"hidden"`
	Heads        int              `json:"heads"`
	KVHeads      int              `json:"kv_heads"`
	HeadDim      int              `json:"head_dim"`
	FFN          int              `json:"ffn"`
	Vocab        int              `json:"vocab"`
	Context      int              `json:"context"`
	Tied         bool             `json:"tie_embeddings"`
	QKVBias      bool             `json:"qkv_bias"`
	QKNorm       bool             `json:"qk_norm"`
	RoPETheta    float64          `json:"rope_theta"`
	RoPEScaling  string           `json:"rope_scaling"`
	Weights      []typeSize       `json:"weights"`
	FileBytes    int64            `json:"weight_bytes"`        // as stored
	DeviceBytes  int64            `json:"device_weight_bytes"` // as held by the device
	InPlace      bool             `json:"weights_in_place"`    // all weights are used in the mapped file
	Lossless     bool             `json:"weights_lossless"`    // the device computes with exactly the stored values
	KV           kvInfo           `json:"kv_cache"`
	BOS          []int            `json:"bos"`
	EOS          []int            `json:"eos"` // stop ids in the files; EndTokens has all
	EndTokens    []model.EndToken `json:"end_tokens"`
	Warnings     []string         `json:"warnings"`
	Tokenizer    string           `json:"tokenizer"` // its kind, or why there is none
	HasTokenizer bool             `json:"has_tokenizer"`
	Template     string           `json:"template"`
	HasTemplate  bool             `json:"has_template"`
	Templates    []string         `json:"templates"` // names
	Sampling     samplingInfo     `json:"sampling"`
	Plan         planInfo         `json:"plan"`
	Ops          []opRow          `json:"ops"`
	NonFinite    *[]string        `json:"non_finite,omitempty"` // tensors with NaN or Inf; nil without --check
}

// typeSize is the size of the weights of one type.
type typeSize struct {
	Type    string `json:"type"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
}

type kvInfo struct {
	Type             string `json:"dtype"`
	BytesPerPosition int64  `json:"bytes_per_position"`
	Positions        int    `json:"positions"`
	BytesAtFull      int64  `json:"bytes_at_full_context"`
}

type planInfo struct {
	Device       string `json:"device"`
	Chunk        int    `json:"chunk"`
	Activations  string `json:"activations"`
	Programs     int    `json:"programs"`
	PrefillSteps int    `json:"prefill_steps"`
	DecodeSteps  int    `json:"decode_steps"`
}

// describe returns everything but the result of --check.
func describe(ck *checkpoint.Checkpoint, p *plan.Plan, dev npu.Info) *modelInfo {
	c := ck.Config()
	out := &modelInfo{
		Name: checkpoint.Name(ck.Path()), OwnName: c.Name, Path: ck.Path(), Format: ck.Format(), Family: c.Family,
		Parameters: ck.Parameters(),
		Layers:     c.Layers, Hidden: c.Hidden, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, FFN: c.FFN,
		Vocab: c.Vocab, Context: c.Context,
		Tied: c.TieEmbeddings, QKVBias: c.QKVBias, QKNorm: c.QKNorm, RoPETheta: c.RoPE.Theta,
		RoPEScaling: c.RoPE.Scaling,
		FileBytes:   ck.Size(), InPlace: true, Lossless: true,
		BOS: append([]int{}, c.BOS...), EOS: append([]int{}, c.EOS...), Templates: []string{},
		Sampling: samplingOf(ck.Generation()), Warnings: append([]string{}, ck.Warnings()...),
		Plan: planInfo{Device: p.Device, Chunk: p.Chunk, Activations: p.Activations.String(), Programs: len(p.Programs),
			PrefillSteps: dispatches(p.Prefill[len(p.Prefill)-1]), DecodeSteps: dispatches(p.Decode)},
		KV: kvOf(p),
	}
	byType, tables := map[string]*typeSize{}, tablesOf(p)
	for _, t := range ck.Tensors() {
		s := byType[t.Type.String()]
		if s == nil {
			s = &typeSize{Type: t.Type.String()}
			byType[s.Type] = s
		}
		s.Tensors++
		s.Bytes += int64(t.Bytes())
		if tables[t.Name] {
			out.DeviceBytes += int64(dev.Held(t.Type).Bytes(t.Elements()))
		} else {
			out.DeviceBytes += int64(dev.WeightBytes(t.Type, t.Shape))
		}
		out.InPlace = out.InPlace && slices.Contains(dev.InPlace, t.Type) && t.Mapped
		out.Lossless = out.Lossless && dev.Held(t.Type) == t.Type
	}
	for _, s := range byType {
		out.Weights = append(out.Weights, *s)
	}
	slices.SortFunc(out.Weights, func(a, b typeSize) int { return int(b.Bytes - a.Bytes) })
	out.describeText(ck)
	out.Ops = append(opRows("prefill", p, p.Prefill[len(p.Prefill)-1]), opRows("decode", p, p.Decode)...)
	return out
}

// tablesOf returns the tensors that the plan only looks up rows of.
func tablesOf(p *plan.Plan) map[string]bool {
	only := map[string]bool{}
	for _, pass := range p.Passes() {
		for _, s := range slices.Concat(pass.Steps, pass.Head) {
			program := p.Program(s.Program)
			for i, bind := range s.Args {
				if bind.Const == nil {
					continue
				}
				if name, ok := bind.Const.Identity(); ok {
					before, known := only[name]
					only[name] = program.LooksUp(i) && (before || !known)
				}
			}
		}
	}
	return only
}

func (o *modelInfo) describeText(ck *checkpoint.Checkpoint) {
	t, err := model.OpenTokenizer(ck)
	if err != nil {
		o.Tokenizer = reason(err, model.ErrNoTokenizer)
	} else {
		o.Tokenizer, o.HasTokenizer = t.String(), true
	}
	o.EndTokens = append([]model.EndToken{}, model.EndTokens(ck, t)...)
	if _, err := model.OpenTemplate(ck); err != nil {
		o.Template = reason(err, model.ErrNoTemplate)
	} else {
		o.HasTemplate = true
		sources := ck.Text().Templates
		o.Templates = slices.Sorted(maps.Keys(sources))
		var parts []string
		for _, name := range o.Templates {
			lines := output.Count(strings.Count(strings.TrimSpace(sources[name]), "\n")+1, "line") + " of Jinja"
			if len(sources) > 1 {
				lines = name + ", " + lines
			}
			parts = append(parts, lines)
		}
		o.Template = strings.Join(parts, "; ")
	}
}

// reason returns the text of err without the prefix of none.
func reason(err, none error) string {
	return "none: " + strings.TrimPrefix(err.Error(), none.Error()+": ")
}

// dispatches returns the number of a pass's steps on the device.
func dispatches(p plan.Pass) int {
	n := 0
	for _, s := range slices.Concat(p.Steps, p.Head) {
		if s.On == plan.OnDevice {
			n++
		}
	}
	return n
}

// kvOf adds up the caches that the plan's steps need for a session.
func kvOf(p *plan.Plan) kvInfo {
	k := kvInfo{Type: p.Cache.String(), Positions: p.SeqLen}
	seen := map[string]bool{}
	for _, s := range p.Decode.Steps { // prefill writes the same caches that decode reads
		program := p.Program(s.Program)
		for i, b := range s.Args {
			if b.State != "" && !seen[b.State] {
				seen[b.State] = true
				arg := program.Args[i]
				k.BytesPerPosition += int64(arg.Type.Bytes((op.Size{Capacity: 1}).Elements(arg.Shape)))
			}
		}
	}
	k.BytesAtFull = k.BytesPerPosition * int64(k.Positions)
	return k
}

// print writes the description as text.
func (o *modelInfo) print(w io.Writer) error {
	name := o.Name
	if o.OwnName != name {
		name += fmt.Sprintf(", which calls itself %q", o.OwnName)
	}
	rows := [][]string{
		{"model", name},
		{"file", fmt.Sprintf("%s (%s)", o.Path, o.Format)},
		{"architecture", o.architecture()},
		{"", o.features()},
		{"parameters", output.Grouped(o.Parameters)},
		{"vocabulary", fmt.Sprintf("%s tokens, context %s positions", output.Grouped(int64(o.Vocab)),
			output.Grouped(int64(o.Context)))},
		{"weights", o.stored()},
		{"", o.memory()},
		{"KV cache", fmt.Sprintf("%s, %s bytes a position, %s at %s positions", o.KV.Type,
			output.Grouped(o.KV.BytesPerPosition), output.Size(float64(o.KV.BytesAtFull)),
			output.Grouped(int64(o.KV.Positions)))},
		{"tokenizer", o.Tokenizer},
		{"template", o.Template},
		{"sampling", o.Sampling.String()},
		{"end tokens", o.ends()},
		{"plan", fmt.Sprintf("%s, %s, %s activations, prompts in chunks of %d, %s a pass", o.Plan.Device,
			output.Count(o.Plan.Programs, "program"),
			o.Plan.Activations, o.Plan.Chunk, output.Count(o.Plan.DecodeSteps, "dispatch"))},
	}
	for i, text := range o.Warnings {
		rows = append(rows, []string{map[bool]string{true: "warnings"}[i == 0], terminal.Printable(w, text)})
	}
	switch {
	case o.NonFinite == nil: // without --check
	case len(*o.NonFinite) == 0:
		rows = append(rows, []string{"check", "all weights are finite"})
	default:
		rows = append(rows, []string{"check", fmt.Sprintf("NaN or infinity in %s: the model cannot compute "+
			"useful results",
			output.Count(len(*o.NonFinite), "tensor"))})
		for _, name := range *o.NonFinite {
			rows = append(rows, []string{"", name})
		}
	}
	if err := output.Table(w, "", rows); err != nil {
		return err
	}
	return o.printOps(w)
}

// ends lists the tokens that end an answer, each with its source.
func (o *modelInfo) ends() string {
	if len(o.EndTokens) == 0 {
		return "none known: use --max-tokens, --stop or --stop-id to end an answer"
	}
	var list []string
	for _, e := range o.EndTokens {
		name := fmt.Sprint(e.ID)
		if e.Text != "" {
			name += " " + strconv.Quote(e.Text)
		}
		list = append(list, fmt.Sprintf("%s (%s)", name, strings.Join(e.Origins, ", ")))
	}
	return strings.Join(list, "; ")
}

func (o *modelInfo) architecture() string {
	heads := output.Count(o.Heads, "head")
	if o.KVHeads != o.Heads {
		heads += " on " + output.Count(o.KVHeads, "KV head")
	}
	return fmt.Sprintf("%s, %s, hidden %d, FFN %d, %s of %d", o.Family, output.Count(o.Layers, "layer"), o.Hidden,
		o.FFN,
		heads, o.HeadDim)
}

func (o *modelInfo) features() string {
	var list []string
	for _, f := range []struct {
		has  bool
		name string
	}{{o.Tied, "tied embeddings"}, {o.QKVBias, "q/k/v bias"}, {o.QKNorm, "q/k norm"}} {
		if f.has {
			list = append(list, f.name)
		}
	}
	rope := fmt.Sprintf("RoPE theta %g", o.RoPETheta)
	if o.RoPEScaling != "" {
		rope += " scaled as " + o.RoPEScaling
	}
	return strings.Join(append(list, rope), ", ")
}

func (o *modelInfo) stored() string {
	var types []string
	for _, t := range o.Weights {
		types = append(types, fmt.Sprintf("%s %s (%s)", t.Type, output.Size(float64(t.Bytes)),
			output.Count(t.Tensors, "tensor")))
	}
	return strings.Join(types, ", ")
}

func (o *modelInfo) memory() string {
	if o.InPlace {
		return "used where they lie in the file, no second copy"
	}
	if o.Lossless {
		return fmt.Sprintf("%s in memory, compressed or put in order once, without loss",
			output.Size(float64(o.DeviceBytes)))
	}
	return fmt.Sprintf("%s in memory: what the device cannot use as it is becomes BF16",
		output.Size(float64(o.DeviceBytes)))
}

// samplingInfo is the sampling that the model's files recommend. Missing values stay unset.
type samplingInfo struct {
	DoSample          *bool    `json:"do_sample,omitempty"`
	Temperature       *float64 `json:"temperature,omitempty"`
	TopK              *int     `json:"top_k,omitempty"`
	TopP              *float64 `json:"top_p,omitempty"`
	MinP              *float64 `json:"min_p,omitempty"`
	RepetitionPenalty *float64 `json:"repetition_penalty,omitempty"`
}

func samplingOf(g *checkpoint.Generation) samplingInfo {
	return samplingInfo{g.DoSample, g.Temperature, g.TopK, g.TopP, g.MinP, g.RepetitionPenalty}
}

func (s samplingInfo) String() string {
	var parts []string
	if s.DoSample == nil || !*s.DoSample {
		parts = append(parts, "greedy unless --temp is given")
	} else if s.Temperature == nil {
		parts = append(parts, "temperature 1")
	}
	add := func(name string, v *float64) {
		if v != nil {
			parts = append(parts, fmt.Sprintf("%s %g", name, *v))
		}
	}
	add("temperature", s.Temperature)
	if s.TopK != nil {
		parts = append(parts, fmt.Sprintf("top-k %d", *s.TopK))
	}
	add("top-p", s.TopP)
	add("min-p", s.MinP)
	add("repetition penalty", s.RepetitionPenalty)
	return strings.Join(parts, ", ")
}
