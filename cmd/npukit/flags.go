package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/sim"
	"github.com/npukit/npukit/npu/xdna"
)

// positive is the value of a flag that must be at least 1. Its zero value is the default and cannot
// be set.
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

// numberError returns an error that states which values a numeric flag takes, in place of strconv's
// text. It returns other errors unchanged.
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

// deviceFlags select the device.
type deviceFlags struct {
	device    string
	threads   int
	kernels   string
	inPlace   bool
	artefacts string
	compile   string
	log       string
	err       io.Writer // for the log, and the output of the compile command; nil discards both
}

func (f *deviceFlags) add(cmd *cobra.Command) {
	f.err = cmd.ErrOrStderr()
	flags := cmd.Flags()
	flags.StringVar(&f.device, "device", "cpu", "run on `DEVICE`: cpu, sim or xdna (npukit devices lists those of "+
		"this build)")
	flags.StringVar(&f.artefacts, "artefacts", "", "`FOLDER` of programs compiled for the NPU (xdna; default "+
		"$NPUKIT_ARTEFACTS)")
	flags.StringVar(&f.compile, "compile", "", "`COMMAND` that compiles programs without a matching artefact "+
		"in the folder; see "+
		"docs/hardware.md (xdna; default $NPUKIT_COMPILE)")
	flags.StringVar(&f.log, "log", "warn", "write the NPU's log from `LEVEL` on to standard error: "+
		strings.Join(logLevels, ", ")+" (xdna)")
	flags.Var((*positive)(&f.threads), "threads", "use `N` threads (default all cores)")
	flags.StringVar(&f.kernels, "kernels", "", "kernels of the cpu, `NAME`: "+strings.Join(cpu.KernelNames(), ", ")+
		" (default $NPUKIT_KERNELS, else the fastest here, found by timing)")
	flags.BoolVar(&f.inPlace, "in-place", false, "use BF16 weights in the mapped file: opens at once, decodes "+
		"slower; a truncated file is a bus error unless --read-weights")
}

// compiler returns the compiler of --compile, or nil. On a terminal its progress is shown.
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
			// A write error means that the terminal is gone. The compilation continues.
			fmt.Fprintf(f.err, "%s %s\n", terminal.Styled(f.err, terminal.Dim, program+":"),
				terminal.Printable(f.err, line))
		}
	}
	return c
}

// maxThreads is the limit of package cpu.
const maxThreads = 1024

// deviceKinds are the values of --device.
var deviceKinds = []string{"cpu", "sim", "xdna"}

// check returns an error if the flags are invalid on every machine.
func (f *deviceFlags) check() error {
	switch {
	case f.log != "" && !slices.Contains(logLevels, f.log):
		return usagef("--log is %q, want %s", f.log, strings.Join(logLevels, ", "))
	case !slices.Contains(deviceKinds, f.device):
		return usagef("unknown device %q: use cpu, sim or xdna", f.device)
	case f.threads > maxThreads:
		return usagef("--threads is %d, want at most %d", f.threads, maxThreads)
	case f.kernels != "" && !slices.Contains(cpu.KernelNames(), f.kernels):
		return usagef("unknown kernels %q: use %s, or omit --kernels", f.kernels,
			strings.Join(cpu.KernelNames(), ", "))
	case f.inPlace && f.device != "cpu":
		return usagef("--in-place needs --device cpu, not %s", f.device)
	case f.artefacts != "" && f.device != "xdna":
		return usagef("--artefacts needs --device xdna, not %s", f.device)
	case f.compile != "" && f.device != "xdna":
		return usagef("--compile needs --device xdna, not %s", f.device)
	}
	return nil
}

// logLevels are the values of --log.
var logLevels = []string{"debug", "info", "warn", "error", "off"}

// logger returns the log of the device, for people: a line has no time.
func (f *deviceFlags) logger() *slog.Logger {
	if f.err == nil || f.log == "off" {
		return slog.New(slog.DiscardHandler)
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.log)); err != nil {
		level = slog.LevelWarn
	}
	return slog.New(slog.NewTextHandler(f.err, &slog.HandlerOptions{Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey && len(groups) == 0 {
				return slog.Attr{}
			}
			return a
		}}))
}

// open opens the device. The device's threads occupy Ps, so open raises GOMAXPROCS until one P is
// left for other goroutines (see package cpu). A library must not do that.
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
			Threads: f.threads, Kernels: f.kernels, Log: f.logger()})
	}
	if err != nil {
		return nil, err
	}
	if want := dev.Info().Threads + 1; runtime.GOMAXPROCS(0) < want {
		runtime.GOMAXPROCS(want)
	}
	return dev, nil
}

// modelFlags select how a model is opened.
type modelFlags struct {
	deviceFlags
	plan        string
	activations string
	context     int
	readWeights bool
	apart       bool // sessions share no KV prefix, so that all work is measured

	chatTemplate string // source of a template that replaces the model's
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

// options converts the flags to the options of package model.
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

// opened is a model and the device that only it uses.
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
	m, load, err := f.openOn(ctx, a, dev, arg)
	if err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return &opened{m, dev, load}, nil
}

// openOn finds a model, loads it on dev, and returns the time that loading took. On a terminal it shows
// progress if that is long.
func (f *modelFlags) openOn(ctx context.Context, a *app, dev npu.Device, arg string) (m *model.Model,
	load time.Duration, err error) {
	options, err := f.options()
	if err != nil {
		return nil, 0, err
	}
	path, err := findModel(arg)
	if err != nil {
		return nil, 0, err
	}
	if f.apart {
		options.PrefixBytes = new(int)
	}
	options.ChatTemplate = f.chatTemplate
	if p := options.Plan; p != nil && p.Status == plan.Draft {
		fmt.Fprintf(a.err, "%s is a draft: no evaluation has accepted it yet (npukit deploy shows its "+
			"progress)\n",
			f.plan)
	}
	done := a.progress("loading " + checkpoint.Name(path))
	defer done()
	started := time.Now()
	m, err = model.Open(ctx, dev, path, options)
	return m, time.Since(started), err
}

// Close closes the model and then its device.
func (o *opened) Close() error { return errors.Join(o.Model.Close(), o.dev.Close()) }

// generateFlags select how text is generated.
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

// check returns an error if no model could accept the values, before one is loaded.
func (f *generateFlags) check(cmd *cobra.Command) error {
	for _, text := range f.stop {
		if text == "" {
			return usagef("--stop is empty: want a text")
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
	if cmd.Flags().Changed("top-p") && f.topP == 0 { // in model.Sampling 0 means not set
		return usagef("--top-p is 0, which excludes every token: use 1 for all tokens, or --temp 0 for the " +
			"most likely one")
	}
	if cmd.Flags().Changed("repeat-penalty") && f.penalty == 0 {
		return usagef("--repeat-penalty is 0, want a positive factor (1 is no change)")
	}
	if err := f.sampling(cmd, model.Sampling{}).Validate(); err != nil {
		return usageError{flagError(err)}
	}
	return nil
}

// optionFlags maps fields of package model's options to the flags that set them.
var optionFlags = map[string]string{
	"Sampling.Temperature": "temp", "Sampling.TopK": "top-k", "Sampling.TopP": "top-p", "Sampling.MinP": "min-p",
	"Sampling.RepetitionPenalty": "repeat-penalty",
	"GenerateOptions.StopIDs":    "stop-id", "Prompt.IDs": "ids", "PlanOptions.SeqLen": "ctx",
}

// flagError names the flag in an error about an option. It returns other errors unchanged.
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

// sampling returns s with the fields that flags set.
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

// options returns the options of one generation.
func (f *generateFlags) options(cmd *cobra.Command, m *model.Model, stats *model.Stats) *model.GenerateOptions {
	sampling := f.sampling(cmd, m.DefaultSampling())
	o := &model.GenerateOptions{
		MaxTokens: f.maxTokens, Sampling: &sampling, Stop: f.stop, IgnoreEOS: f.ignoreEOS, Stats: stats,
	}
	for _, id := range f.stopIDs {
		o.StopIDs = append(o.StopIDs, int32(id)) // in range, see check
	}
	return o
}

// findModel returns the path of the MODEL argument: see [localmodel.Find].
func findModel(arg string) (string, error) {
	if arg == "" {
		return "", usagef("MODEL is empty: want a Hugging Face folder, a .gguf file, or the name of a " +
			"model in the cache")
	}
	return localmodel.Find(arg)
}
