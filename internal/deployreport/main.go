// Command deployreport deploys models and writes how it went: docs/deployments.md. It is `make
// deploy-report`.
//
// Deployments lie in the folder -work, one each, with the checkpoints of random weights that some
// of them need. They go on where they were, so that hours of work can be done in pieces:
//
//	go run ./internal/deployreport -work DIR -only smollm2-cpu -budget 8m
//	go run ./internal/deployreport -work DIR -only none        # writes the page from what is there
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/npukit/npukit/internal/published"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/sim"
	"github.com/npukit/npukit/skill"
)

func main() {
	skill.Main(openDevice, nil) // evaluations start this program again
	work := flag.String("work", filepath.Join(os.TempDir(), "npukit-deployments"), "`folder` of the deployments")
	out := flag.String("out", "docs", "`folder` for the page")
	only := flag.String("only", "", "deploy these `subjects`, with commas between; none only writes the page "+
		"(default all)")
	budget := flag.Duration("budget", 0, "for each deployment; what does not fit is left for the next time "+
		"(default no limit)")
	load := flag.String("load", "with other work beside them", "`what` the machine did meanwhile, in the page's words")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *work, *out, *only, *load, *budget); err != nil {
		fmt.Fprintln(os.Stderr, "deployreport:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, work, out, only, load string, budget time.Duration) error {
	all := subjects()
	wanted := strings.Split(only, ",")
	for _, name := range wanted {
		if name != "" && name != "none" && !slices.ContainsFunc(all, func(s subject) bool { return s.name == name }) {
			return fmt.Errorf("there is no subject %q", name)
		}
	}
	var failed []error
	for _, s := range all {
		if only != "" && !slices.Contains(wanted, s.name) {
			continue
		}
		fmt.Println(s.name)
		if err := s.deploy(ctx, work, budget); err != nil {
			if ctx.Err() != nil {
				return err
			}
			fmt.Println(s.name+":", err) // the page says how far it came
			if !errors.Is(err, context.DeadlineExceeded) {
				failed = append(failed, fmt.Errorf("%s: %w", s.name, err))
			}
		}
	}
	data, err := page(ctx, work, load, all, published.Models(), time.Now())
	if err != nil {
		return err
	}
	file := filepath.Join(out, "deployments.md")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		return err
	}
	fmt.Println(file)
	return errors.Join(failed...)
}

// openDevice opens a device by its kind.
func openDevice(_ context.Context, kind string) (npu.Device, error) {
	if kind == "sim" {
		return sim.Open(nil)
	}
	return cpu.Open(nil)
}

// deploy deploys a subject, or goes on with it.
func (s subject) deploy(ctx context.Context, work string, budget time.Duration) (err error) {
	path, err := s.checkpoint(filepath.Join(work, "models"))
	if err != nil {
		return err
	}
	dev, err := openDevice(ctx, s.device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	opts := &skill.Options{Dir: s.folder(work), SeqLen: s.seqLen, Budget: budget,
		Evaluate: skill.InNewProcess(s.device, &skill.EvaluateOptions{Positions: s.positions}), Positions: s.positions,
		Observe: func(e skill.Event) {
			if e.What != "step" {
				fmt.Printf("%s %s %s: %s\n", time.Now().Format("15:04:05"), e.Phase, e.What, e.Text)
			}
		}}
	d, err := skill.NewDeployment(path, dev, opts)
	if err != nil {
		return err
	}
	return errors.Join(d.Run(ctx), d.Close())
}

// folder is the workspace of a subject.
func (s subject) folder(work string) string { return filepath.Join(work, s.name) }
