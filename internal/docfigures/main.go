// Command docfigures draws the figures of the pages in docs: the roofline of the array, the
// trajectory of an optimisation, and the error by layer. It is `make doc-figures`.
//
//	go run ./internal/docfigures              all figures
//	go run ./internal/docfigures roofline     one of roofline, trajectory, layers
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
)

// figures are the figures by name. Each is written to <name>.png.
var figures = []struct {
	name string
	draw func(ctx context.Context) (*figure, error)
}{
	{"roofline", roofline},
	{"trajectory", trajectory},
	{"layers", layers},
}

func main() {
	out := flag.String("out", "docs", "`folder` for the figures")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "docfigures:", err)
		os.Exit(1)
	}
}

// run draws the figures with the given names, or all if there are none.
func run(ctx context.Context, out string, names []string) error {
	var known []string
	for _, f := range figures {
		known = append(known, f.name)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("no figure %q: want one of %v", name, known)
		}
	}
	var failed []error
	for _, f := range figures {
		if len(names) > 0 && !slices.Contains(names, f.name) {
			continue
		}
		fig, err := f.draw(ctx)
		if err == nil {
			err = fig.save(filepath.Join(out, f.name+".png"))
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", f.name, err))
		}
	}
	return errors.Join(failed...)
}
