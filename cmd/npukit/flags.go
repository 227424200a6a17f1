package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/npukit/npukit/internal/localmodel"
	"github.com/npukit/npukit/internal/terminal"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/sim"
	"github.com/npukit/npukit/npu/xdna"
)

// positive is the value of a flag that takes a number from 1 on. What it begins with stands for the
// default, which is had by leaving the flag out.
type positive int

func (p *positive) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return errors.New("it must be a positive number")
	}
	*p = positive(n)
	return nil
}

func (p *positive) String() string { return strconv.Itoa(int(*p)) }
func (p *positive) Type() string   { return "int" }

// numberError says what a flag takes whose value is no number of its kind, which package pflag
// tells in the words of strconv. Other errors stay as they are.
func numberError(err error) error {
	var value *pflag.InvalidValueError
	if !errors.As(err, &value) {
		return err
	}
	flag, text := value.GetFlag(), value.GetValue()
	switch kind := flag.Value.Type(); {
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("--%s is %s, which is out of range", flag.Name, text)
	case errors.Is(err, strconv.ErrSyntax), kind == "duration":
		want := map[string]string{"int": "a whole number", "uint64": "a whole number from 0", "float64": "a number",
			"intSlice": "whole numbers with commas between",
			"duration": "a time such as 30m"}
		if want[kind] != "" {
			return fmt.Errorf("--%s is %q, want %s", flag.Name, text, want[kind])
		}
	}
	return err
}

// deviceFlags say which device runs.
type deviceFlags struct {
	device    string
	threads   int
	kernels   string
	inPlace   bool
	artefacts string
	compile   string
	err       io.Writer // for what a compile command prints; nil for nowhere
}

func (f *deviceFlags) add(cmd *cobra.Command) {
	f.err = cmd.ErrOrStderr()
	flags := cmd.Flags()
	flags.StringVar(&f.device, "device", "cpu", "run on `DEVICE`: cpu, sim or xdna (npukit devices lists those of "+
		"this build)")
	flags.StringVar(&f.artefacts, "artefacts", "", "`FOLDER` of programs compiled for the NPU (xdna; default "+
		"$NPUKIT_ARTEFACTS)")
	flags.StringVar(&f.compile, "compile", "", "`COMMAND` that compiles programs missing in the folder; see "+
		"docs/hardware.md (xdna; default $NPUKIT_COMPILE)")
	flags.Var((*positive)(&f.threads), "threads", "use `N` threads (default all cores)")
	flags.StringVar(&f.kernels, "kernels", "", "kernels of the cpu, `NAME`: "+strings.Join(cpu.KernelNames(), ", ")+
		" (default $NPUKIT_KERNELS, else the fastest here, found by timing)")
	flags.BoolVar(&f.inPlace, "in-place", false, "use BF16 weights in the mapped file: opens at once, decodes "+
		"slower; a truncated file is a bus error unless --read-weights")
}

// compiler is what --compile names, or nil. Its progress is shown on a terminal.
func (f *deviceFlags) compiler() *xdna.Compiler {
	command := f.compile
	if command == "" {
		command = os.Getenv("NPUKIT_COMPILE")
	}
	words := strings.Fields(command)
	if len(words) == 0 {
		return nil
	}
	c := &xdna.Compiler{Command: words}
	if terminal.Is(f.err) {
		c.Progress = func(program, line string) {
			// A terminal that is gone is no reason to stop.
			fmt.Fprintf(f.err, "%s %s\n", terminal.Styled(f.err, terminal.Dim, program+":"), terminal.Printable(f.err, line))
		}
	}
	return c
}

// maxThreads is what package cpu takes at most.
const maxThreads = 1024

// deviceKinds are what --device takes.
var deviceKinds = []string{"cpu", "sim", "xdna"}

// check reports flags that no machine could take.
func (f *deviceFlags) check() error {
	switch {
	case !slices.Contains(deviceKinds, f.device):
		return usagef("there is no device %q: use cpu, sim or xdna", f.device)
	case f.threads > maxThreads:
		return usagef("--threads is %d, %d are the most", f.threads, maxThreads)
	case f.kernels != "" && !slices.Contains(cpu.KernelNames(), f.kernels):
		return usagef("there are no kernels %q: use %s, or leave --kernels out", f.kernels,
			strings.Join(cpu.KernelNames(), ", "))
	case f.inPlace && f.device != "cpu":
		return usagef("--in-place is for the cpu: the device is %s", f.device)
	case f.artefacts != "" && f.device != "xdna":
		return usagef("--artefacts is for xdna: the device is %s", f.device)
	case f.compile != "" && f.device != "xdna":
		return usagef("--compile is for xdna: the device is %s", f.device)
	}
	return nil
}

// open opens the device. Its threads leave no P for goroutines unless there are more Ps than
// threads (see package cpu), so the command sees to that; a library must not.
func (f *deviceFlags) open() (dev npu.Device, err error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	switch f.device {
	case "cpu":
		dev, err = cpu.Open(&cpu.Options{Threads: f.threads, Kernels: f.kernels, InPlace: f.inPlace})
	case "sim":
		dev, err = sim.Open(&sim.Options{Threads: f.threads, Kernels: f.kernels})
	case "xdna":
		dev, err = xdna.Open(context.Background(), &xdna.Options{Artefacts: f.artefacts, Compile: f.compiler(),
			Threads: f.threads, Kernels: f.kernels})
	}
	if err != nil {
		return nil, err
	}
	if want := dev.Info().Threads + 1; runtime.GOMAXPROCS(0) < want {
		runtime.GOMAXPROCS(want)
	}
	return dev, nil
}

// modelFlags say how a model is opened.
type modelFlags struct {
	deviceFlags
	plan        string
	activations string
	context     int
	readWeights bool
	apart       bool // sessions take nothing from each other: what is measured is computed

	chatTemplate string // source of a template in place of the model's
}

func (f *modelFlags) add(cmd *cobra.Command) {
	f.deviceFlags.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.plan, "plan", "", "run the plan in `FILE` (npukit info --plan-out writes one)")
	flags.StringVar(&f.activations, "activations", "", "`TYPE` of the inputs of matrix products: bf16 (default), "+
		"or f32, which also makes the KV cache F32")
	flags.Var((*positive)(&f.context), "ctx",
		fmt.Sprintf("positions of a conversation at most, `N` (default the model's context, up to %d)",
			plan.DefaultMaxContext))
	flags.BoolVar(&f.readWeights, "read-weights", false, "read weights into memory instead of mapping their files; "+
		"survives a file that is truncated later")
	cmd.MarkFlagsMutuallyExclusive("plan", "activations")
	cmd.MarkFlagsMutuallyExclusive("plan", "ctx")
}

// options turns the flags into what package model takes.
func (f *modelFlags) options() (*model.OpenOptions, error) {
	if f.plan != "" {
		p, err := plan.Read(f.plan)
		if err == nil && p.Status == plan.Failed {
			err = plan.ErrFailed
		}
		return &model.OpenOptions{Plan: p, ReadWeights: f.readWeights}, err
	}
	o := &plan.Options{SeqLen: f.context}
	switch strings.ToLower(f.activations) {
	case "", "bf16":
	case "f32":
		o.Activations, o.Cache = dtype.F32, dtype.F32
	default:
		return nil, usagef("--activations is %q, want bf16 or f32", f.activations)
	}
	return &model.OpenOptions{PlanOptions: o, ReadWeights: f.readWeights}, nil
}

// opened is a model on a device of its own.
type opened struct {
	*model.Model
	dev  npu.Device
	load time.Duration
}

// open finds and loads a model.
func (f *modelFlags) open(ctx context.Context, a *app, arg string) (*opened, error) {
	dev, err := f.deviceFlags.open()
	if err != nil {
		return nil, err
	}
	started := time.Now()
	m, err := f.openOn(ctx, a, dev, arg)
	if err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return &opened{m, dev, time.Since(started)}, nil
}

// openOn finds a model and loads it on a device. On a terminal it says so when that takes long.
func (f *modelFlags) openOn(ctx context.Context, a *app, dev npu.Device, arg string) (*model.Model, error) {
	options, err := f.options()
	if err != nil {
		return nil, err
	}
	path, err := findModel(arg)
	if err != nil {
		return nil, err
	}
	if f.apart {
		options.PrefixBytes = new(int)
	}
	options.ChatTemplate = f.chatTemplate
	if p := options.Plan; p != nil && p.Status == plan.Draft {
		fmt.Fprintf(a.err, "%s is a draft: no evaluation has accepted it yet (npukit deploy says how far it is)\n",
			f.plan)
	}
	done := a.progress("loading " + localmodel.Name(path))
	defer done()
	return model.Open(ctx, dev, path, options)
}

// Close closes the model, then its device.
func (o *opened) Close() error { return errors.Join(o.Model.Close(), o.dev.Close()) }

// generateFlags say how text is generated.
type generateFlags struct {
	temp, topP, minP, penalty float64
	topK                      int
	seed                      uint64
	maxTokens                 int
	ignoreEOS                 bool
	stop                      []string
	stopIDs                   []int
}

func (f *generateFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Float64Var(&f.temp, "temp", 0, "sampling temperature `T`; 0 is greedy (default the model's)")
	flags.IntVar(&f.topK, "top-k", 0, "sample from the `K` most likely tokens; 0 is all (default the model's)")
	flags.Float64Var(&f.topP, "top-p", 0, "sample from the most likely tokens with total probability `P`; 1 is all "+
		"(default the model's)")
	flags.Float64Var(&f.minP, "min-p", 0, "sample from tokens at least `P` times as likely as the best; 0 is all "+
		"(default the model's)")
	flags.Float64Var(&f.penalty, "repeat-penalty", 0, "make earlier tokens less likely by the factor `F`; 1 is no "+
		"change (default the model's)")
	flags.Uint64Var(&f.seed, "seed", 0, "random seed `N`; the same seed gives the same text, 0 is a new seed each time")
	flags.VarP((*positive)(&f.maxTokens), "max-tokens", "n",
		"generate at most `N` tokens (default until the context is full)")
	flags.BoolVar(&f.ignoreEOS, "ignore-eos", false, "continue after the model's end tokens")
	flags.StringArrayVar(&f.stop, "stop", nil, "end before `TEXT`, or at the special token with that text; repeatable")
	flags.IntSliceVar(&f.stopIDs, "stop-id", nil, "end at the token `ID`, or 1,2,3; repeatable")
}

// check reports values that no model could take, before one is loaded.
func (f *generateFlags) check(cmd *cobra.Command) error {
	for _, text := range f.stop {
		if text == "" {
			return usagef("--stop is empty: that would come before everything")
		}
		if err := checkText("--stop", text); err != nil {
			return usageError{err}
		}
	}
	for _, id := range f.stopIDs {
		if id < 0 || id > math.MaxInt32 {
			return usagef("--stop-id is %d, want a token id", id)
		}
	}
	if cmd.Flags().Changed("top-p") && f.topP == 0 { // 0 in a model.Sampling is what nobody has asked for
		return usagef("--top-p is 0, which no token is in: 1 is all of them, and --temp 0 takes the best")
	}
	if cmd.Flags().Changed("repeat-penalty") && f.penalty == 0 {
		return usagef("--repeat-penalty is 0, by which nothing can be divided: 1 is no change")
	}
	if err := f.sampling(cmd, model.Sampling{}).Validate(); err != nil {
		return usageError{flagError(err)}
	}
	return nil
}

// optionFlags are the flags that set fields of package model's options.
var optionFlags = map[string]string{
	"Sampling.Temperature": "temp", "Sampling.TopK": "top-k", "Sampling.TopP": "top-p", "Sampling.MinP": "min-p",
	"Sampling.RepetitionPenalty": "repeat-penalty",
	"GenerateOptions.StopIDs":    "stop-id", "Prompt.IDs": "ids", "PlanOptions.SeqLen": "ctx",
}

// flagError returns an error about an option in the words of the flag that set it, and others as
// they are.
func flagError(err error) error {
	var bad *plan.OptionError
	if !errors.As(err, &bad) {
		return err
	}
	field, _, _ := strings.Cut(bad.Field, "[")
	if flag := optionFlags[field]; flag != "" {
		return fmt.Errorf("--%s is %v, want %s", flag, bad.Value, bad.Want)
	}
	return err
}

// sampling is the model's own with the flags that were given in place of its fields.
func (f *generateFlags) sampling(cmd *cobra.Command, s model.Sampling) model.Sampling {
	set := func(name string, dst *float64, v float64) {
		if cmd.Flags().Changed(name) {
			*dst = v
		}
	}
	set("temp", &s.Temperature, f.temp)
	set("top-p", &s.TopP, f.topP)
	set("min-p", &s.MinP, f.minP)
	set("repeat-penalty", &s.RepetitionPenalty, f.penalty)
	if cmd.Flags().Changed("top-k") {
		s.TopK = f.topK
	}
	s.Seed = f.seed
	return s
}

// options are the options of one generation.
func (f *generateFlags) options(cmd *cobra.Command, m *model.Model, stats *model.Stats) *model.GenerateOptions {
	sampling := f.sampling(cmd, m.DefaultSampling())
	o := &model.GenerateOptions{
		MaxTokens: f.maxTokens, Sampling: &sampling, Stop: f.stop, IgnoreEOS: f.ignoreEOS, Stats: stats,
	}
	for _, id := range f.stopIDs {
		o.StopIDs = append(o.StopIDs, int32(id)) // checked
	}
	return o
}

// findModel returns the path of the MODEL of a command line: see [localmodel.Find].
func findModel(arg string) (string, error) {
	if arg == "" {
		return "", usagef("MODEL is empty: give a Hugging Face folder, a .gguf file or the name of a model " +
			"in the cache")
	}
	return localmodel.Find(arg)
}
