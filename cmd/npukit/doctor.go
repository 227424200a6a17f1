package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/npukit/npukit/internal/doctor"
	"github.com/npukit/npukit/internal/output"
	"github.com/npukit/npukit/npu/xdna"
)

func doctorCommand(a *app) *cobra.Command {
	var artefacts, root string
	var smoke, asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what this machine lacks to run models on its NPU",
		Long: `Doctor checks what the owner of a Ryzen AI machine needs before the first run on the NPU,
in the order in which problems are best fixed. It only reads files; --smoke also opens
the NPU. It exits with 1 if it finds a problem.`,
		Example: `  npukit doctor
  npukit doctor --artefacts mlir-air/programming_examples/llms/llama32_1b/build_peano --smoke`,
		Args: arguments(),
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			if root != "" { // an empty root would look like a machine without an NPU
				if info, err := os.Stat(root); err != nil {
					return fmt.Errorf("--root: %w", err)
				} else if !info.IsDir() {
					return fmt.Errorf("--root: %s is not a folder", root)
				}
			}
			r := doctor.Examine(&doctor.Options{Artefacts: artefacts, Root: root})
			if smoke {
				r.Findings = append(r.Findings, smokeTest(ctx, artefacts, (&deviceFlags{err: a.err}).logger())...)
			}
			if err := a.printDiagnosis(r, asJSON); err != nil {
				return err
			}
			if n := r.Problems(); n > 0 {
				return errors.New(output.Count(n, "problem"))
			}
			return ctx.Err()
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&artefacts, "artefacts", os.Getenv("NPUKIT_ARTEFACTS"),
		"also look at the compiled programs in `FOLDER` (default $NPUKIT_ARTEFACTS)")
	flags.BoolVar(&smoke, "smoke", false, "open the NPU, copy to it and back, add vectors (program vadd), and run "+
		"other artefacts over zeros")
	flags.StringVar(&root, "root", "", "check the files of another machine, copied below `FOLDER`")
	flags.BoolVar(&asJSON, "json", false, "print a JSON object")
	cmd.MarkFlagsMutuallyExclusive("root", "smoke")
	return cmd
}

// printDiagnosis prints a line for each finding, and below it the advice.
func (a *app) printDiagnosis(r *doctor.Report, asJSON bool) error {
	if asJSON {
		return output.JSON(a.out, r)
	}
	width := 0
	for _, f := range r.Findings {
		width = max(width, len(f.Subject))
	}
	for _, f := range r.Findings {
		if _, err := fmt.Fprintf(a.out, "%-7s  %-*s  %s\n", f.Status, width, f.Subject, f.Text); err != nil {
			return err
		}
		if f.Advice != "" {
			if _, err := fmt.Fprintf(a.out, "%7s  %-*s  -> %s\n", "", width, "", f.Advice); err != nil {
				return err
			}
		}
	}
	return nil
}

// smokeBytes is the size of the copied buffer. It is larger than any cache of the processor.
const smokeBytes = 64 << 20

// smokeTest opens the NPU and performs the operations that models need.
func smokeTest(ctx context.Context, artefacts string, log *slog.Logger) (list []doctor.Finding) {
	const subject = "smoke test"
	add := func(err error, format string, args ...any) {
		f := doctor.Finding{Subject: subject, Status: doctor.OK, Text: fmt.Sprintf(format, args...)}
		if err != nil {
			f.Status, f.Text = doctor.Problem, err.Error()
		}
		list = append(list, f)
	}
	dev, err := xdna.Open(ctx, &xdna.Options{Artefacts: artefacts, Log: log})
	if err != nil {
		add(err, "")
		return list
	}
	defer func() {
		if err := dev.Close(); err != nil {
			add(err, "")
		}
	}()
	add(nil, "opened %s", dev.Info().Name)
	to, from, err := dev.CopyBandwidth(ctx, smokeBytes)
	add(err, "%s copied to the device at %s and back at %s", output.Size(smokeBytes), output.Scaled(to, "B/s"),
		output.Scaled(from, "B/s"))
	summed := false
	for _, name := range dev.Artefacts().Names() {
		if name == "vadd" || name == "eltwise_add" {
			summed = true
			s, err := dev.ProbeSum(ctx, dev.Artefacts().Get(name))
			add(err, "program %s: added %d elements of %s correctly in %s", name, s.Elements, s.Type,
				output.Seconds(s.Run))
			continue
		}
		p, err := dev.ProbeArtefact(ctx, dev.Artefacts().Get(name))
		if p.Run == 0 {
			add(err, "program %s: opened in %s; not run, because its manifest does not list the sizes of "+
				"its arguments", name, output.Seconds(p.Open))
			continue
		}
		add(err, "program %s: opened in %s, ran on zeros in %s", name, output.Seconds(p.Open), output.Seconds(p.Run))
	}
	if !summed {
		list = append(list, doctor.Finding{Subject: subject, Status: doctor.Advice,
			Text:   "there is no vadd program in the artefacts, so no result was checked",
			Advice: "docs/hardware.md, \"A first program\", explains how to build one"})
	}
	return list
}
