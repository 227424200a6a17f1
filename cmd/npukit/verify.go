package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/gate/golden"
	"github.com/npukit/npukit/internal/output"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/oracle"
)

func verifyCommand(a *app) *cobra.Command {
	v := &verifier{app: a}
	cmd := &cobra.Command{
		Use:   "verify MODEL",
		Short: "Compare a device with the reference, and find the first wrong op",
		Long: `Verify compares a device with a reference. It exits with 0 if the device is right and
with 1 if it is not.

The reference is the oracle, an FP32 implementation in Go that shares no arithmetic with
any device. With --golden it is the stored outputs of another implementation, usually
Hugging Face transformers, and the oracle is compared with them too. scripts/golden.py
writes golden files. The gates:

  logits       both read the same ids: KL divergence of the next token, agreement of
               the top-1 token, likelihood of the ids
  prompt       all ids but the last 32 in one prefill, the rest one by one; judged as
               logits are
  greedy       32 tokens, decoded step by step; at the first difference each side's
               token must be among the other's top five
  determinism  two prompts in turn must give the same logits again, bit for bit

The bounds are those of the device's number format; measured ones name their source. The
ids come from the golden file, else from a text and the model's tokenizer, else from the
oracle, which continues random ids.

--diagnose compares the output of every op in execution order, computed from the device's
own inputs, and names the first wrong op and its usual causes. --report writes everything
as text, JSON and pictures.`,
		Example: `  npukit verify SmolLM2-135M-Instruct-Q4_1
  npukit verify ./Qwen3-0.6B --golden ./Qwen3-0.6B/golden.safetensors
  npukit verify model.gguf --diagnose --report out/
  npukit verify model.gguf --json | jq .ok`,
		Args: arguments("MODEL"),
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error { return v.run(ctx, args[0]) }),
	}
	v.model.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&v.golden, "golden", "", "hold device and oracle to the reference outputs in `FILE` "+
		"(safetensors or JSON)")
	flags.IntVar(&v.positions, "positions", 256, "score at most `N` ids of each text")
	flags.BoolVar(&v.diagnose, "diagnose", false, "find the first wrong op")
	flags.StringVar(&v.report, "report", "", "write reports and pictures to the folder `DIR`")
	flags.BoolVar(&v.show, "show", false, "print continuations of device and reference side by side")
	flags.BoolVar(&v.json, "json", false, "print one JSON object")
	cmd.MarkFlagsMutuallyExclusive("show", "json")
	return cmd
}

// verifier is one execution of `npukit verify`.
type verifier struct {
	app       *app
	model     modelFlags
	golden    string
	positions int
	diagnose  bool
	report    string
	show      bool
	json      bool

	path   string // of the model
	dev    npu.Device
	ref    *oracle.Model
	format string
	tol    gate.Thresholds
	file   *golden.File // nil without --golden

	ids    []int32        // the longest scored sequence
	shown  []verifyPrompt // for --show
	trace  gate.Trace     // for --diagnose
	result verifyResult
}

// verifyResult is the object that --json prints.
type verifyResult struct {
	Model     string `json:"model"`
	Device    string `json:"device"`
	Format    string `json:"format"`    // number format, which selects the thresholds
	Reference string `json:"reference"` // "oracle", or the source of the golden file
	IDs       string `json:"ids"`       // source of the ids
	OK        bool   `json:"ok"`
	Verdict   string `json:"verdict"` // "pass" or "fail"
	// HuggingFace is "agrees" or "differs" with a golden file, and "unproven" without one.
	HuggingFace string       `json:"hugging_face"`
	Gates       []verifyGate `json:"gates"`
	// Gates that were skipped, each with the reason.
	NotRun    []string        `json:"not_run"`
	Reasons   []string        `json:"reasons"` // errors of all failed gates
	Diagnosis *gate.Diagnosis `json:"diagnosis,omitempty"`
	Seconds   float64         `json:"seconds"`
}

// verifyGate is the result of one gate.
type verifyGate struct {
	Name    string       `json:"name"`    // "logits: text"
	Against string       `json:"against"` // "oracle" or "golden"
	Of      string       `json:"of"`      // "device" or "oracle"
	OK      bool         `json:"ok"`
	Report  verifyReport `json:"report"`
	line    string       // the figures in one line
}

// verifyReport is implemented by the reports of all gates.
type verifyReport interface {
	fmt.Stringer
	json.Marshaler
	OK() bool
	Err() error
}

// errVerify is the verdict that the device or the oracle is wrong.
var errVerify = errors.New("verification failed")

func (v *verifier) run(ctx context.Context, arg string) (err error) {
	if v.positions < 16 {
		return usagef("--positions is %d, want 16 or more", v.positions)
	}
	if v.report != "" {
		if err := os.MkdirAll(v.report, 0o755); err != nil {
			return fmt.Errorf("--report: %w", err)
		}
	}
	if v.golden != "" { // fails before the slow part
		if v.file, err = golden.Read(v.golden); err != nil {
			return err
		}
	}
	dev, err := v.model.deviceFlags.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	if v.path, err = findModel(arg); err != nil {
		return err
	}
	return v.on(ctx, dev)
}

// on runs all gates on an open device.
func (v *verifier) on(ctx context.Context, dev npu.Device) (err error) {
	started := time.Now()
	v.dev = dev
	// The oracle has its own checkpoint, because --diagnose closes and reopens the device's model.
	ck, err := checkpoint.Open(v.path, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ck.Close()) }()
	if v.ref, err = oracle.Open(ck); err != nil {
		return err
	}
	if err := v.gates(ctx); err != nil {
		return err
	}
	r := &v.result
	r.OK, r.Verdict, r.HuggingFace = true, "pass", "unproven"
	if v.file != nil {
		r.HuggingFace = "agrees"
	}
	r.Reasons = []string{}
	for _, g := range r.Gates {
		if g.OK {
			continue
		}
		r.OK, r.Verdict = false, "fail"
		r.Reasons = append(r.Reasons, g.Report.Err().Error())
		if g.Against == "golden" {
			r.HuggingFace = "differs"
		}
	}
	if v.diagnose {
		if err := v.find(ctx); err != nil {
			return err
		}
	}
	r.Seconds = time.Since(started).Seconds()
	if err := v.save(); err != nil {
		return err
	}
	if v.json {
		err = output.JSON(v.app.out, r)
	} else {
		err = v.print()
	}
	if err == nil && !r.OK {
		err = errVerify
	}
	return err
}

// gates opens the model on the device and runs all gates.
func (v *verifier) gates(ctx context.Context) (err error) {
	m, _, err := v.model.openOn(ctx, v.app, v.dev, v.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	v.format = m.Plan().NumberFormat(v.dev.Info(), m.Checkpoint().Config().DType)
	var ok bool
	if v.tol, ok = gate.FormatThresholds(v.format); !ok {
		if v.tol, ok = gate.FormatThresholds(baseFormat(v.format)); !ok {
			return fmt.Errorf("there are no thresholds for the number format %s", v.format)
		}
	}
	v.result = verifyResult{Model: checkpoint.Name(v.path), Device: v.dev.Info().Name, Format: v.format,
		Reference: "oracle"}
	s := m.NewSession()
	defer func() { err = errors.Join(err, s.Close()) }()
	if v.file != nil {
		v.result.Reference, v.result.IDs = v.file.Source, "the golden file's"
		if err := v.fits(m); err != nil {
			return err
		}
		err = v.againstGolden(ctx, m, s)
	} else {
		err = v.againstOracle(ctx, m, s)
	}
	if err != nil && ctx.Err() == nil {
		return v.damaged(ctx, m.Checkpoint(), err)
	}
	if err == nil && v.show {
		err = v.continuations(ctx, m, s)
	}
	return err
}

// A diagnosis runs one pass of diagnosedPass positions and then diagnosedSteps single steps. That
// is enough to see patterns along positions, and few enough that all outputs of a 3B model fit in
// 400 MB. diagnosedPass is not a multiple of any tile, so an error at the end of the pass is not
// mistaken for one at the end of a tile.
const (
	diagnosedPass  = 39
	diagnosedSteps = 9
)

// find reopens the model with a tap on every output and finds the first wrong op.
func (v *verifier) find(ctx context.Context) (err error) {
	rec, ok := gate.NewRecording(v.format)
	if !ok {
		return fmt.Errorf("there is no error bound for the number format %s", v.format)
	}
	options, err := v.model.options()
	if err != nil {
		return err
	}
	options.Tap = rec.Tap
	defer v.app.progress("diagnosing")()
	m, err := model.Open(ctx, v.dev, v.path, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	s := m.NewSession()
	defer func() { err = errors.Join(err, s.Close()) }()
	ids := v.ids[:min(len(v.ids), diagnosedPass+diagnosedSteps)]
	pass := max(1, len(ids)-diagnosedSteps)
	if err := s.Score(ctx, ids[:pass], func(int, []float32) error { return nil }); err != nil {
		return err
	}
	for _, id := range ids[pass:] {
		if _, err := s.Step(ctx, id); err != nil {
			return err
		}
	}
	v.trace, err = rec.Trace(func(tap gate.TapFunc) error {
		return v.ref.Forward(ctx, v.ref.NewState(), ids, &oracle.ForwardOptions{Tap: tap}, nil)
	})
	if err != nil {
		return err
	}
	v.trace.Name = v.result.Model
	d := gate.Diagnose(v.trace)
	v.result.Diagnosis = &d
	return nil
}

// diagnosis returns the text about the first wrong op and about the limits of a diagnosis.
func (v *verifier) diagnosis() string {
	text := v.result.Diagnosis.String()
	if v.result.Diagnosis.Clean && !v.result.OK {
		text += "  the gates fail all the same, so that the fault is in what showing every output changes: " +
			"programs are then dispatched one by one and no\n" +
			"  buffer is used again within one. Usual causes: a missing sync, a buffer that two programs share, a " +
			"race; or positions beyond the " +
			fmt.Sprint(diagnosedPass+diagnosedSteps) + " that were looked at\n"
	}
	return text
}
