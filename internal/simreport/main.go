// Command simreport compares predictions of the virtual XDNA 2 with published measurements. It
// writes docs/sim-report.md with its figure, and the table of rules, docs/placement-rules.md. It is
// `make sim-report`.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/npukit/npukit/internal/markdown"
	"github.com/npukit/npukit/internal/validation"
)

func main() {
	out := flag.String("out", "docs", "`folder` for the report")
	flag.Parse()
	if err := write(*out); err != nil {
		fmt.Fprintln(os.Stderr, "simreport:", err)
		os.Exit(1)
	}
}

// section writes one part of the report.
type section func(r *report) error

// report is the text of the page and the other files, by name, that it links to.
type report struct {
	markdown.Page
	files map[string][]byte
}

func write(folder string) error {
	r := &report{files: map[string][]byte{}}
	r.Text(`# Predictions against published measurements

The virtual XDNA 2 predicts times and reproduces number formats. This page compares both with what
others measured on hardware. Nothing here was measured on an NPU by npukit. Published figures are
those of Xilinx/mlir-air e972f2942 (kernel registry and READMEs, Ryzen AI 9 HX 370, turbo) and of
arXiv 2606.07586; all others are predictions. Tests hold every bound that is named. Written by
%s; [npu.md](npu.md) explains the array and the cost model.

`, "`make sim-report`")
	wholes, err := validation.Wholes()
	if err != nil {
		return err
	}
	for _, s := range []section{wholeModels(wholes), kernelTimes, trajectories, numbers, rhoTable, rules} {
		if err := s(r); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	r.files["sim-report.md"] = r.Bytes()
	for name, data := range r.files {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o644); err != nil {
			return err
		}
		fmt.Println(filepath.Join(folder, name))
	}
	return nil
}
