// Command simreport writes what the virtual XDNA 2 predicts beside what was published:
// docs/sim-report.md, with pictures. It is `make sim-report`.
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

// section writes one part of the report. Its files lie in the same folder.
type section func(r *report) error

// report is the text and the pictures of a report in the making.
type report struct {
	markdown.Page
	files map[string][]byte
}

func write(folder string) error {
	r := &report{files: map[string][]byte{}}
	r.Printf(`# The virtual XDNA 2 against published measurements

Written by %s. Nothing here was measured on an NPU by us: what is published comes from Xilinx/mlir-air e972f2942 (kernel registry and READMEs, Ryzen AI 9 HX 370, turbo) and from arXiv
2606.07586; everything else is a prediction. A test holds each of the bounds that are named.

`, "`make sim-report`")
	wholes, err := validation.Wholes()
	if err != nil {
		return err
	}
	for _, s := range []section{kernelTimes, wholeModels(wholes), rhoTable, trajectories, numbers, rules} {
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
