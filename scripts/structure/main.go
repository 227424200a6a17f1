// Command structure checks the bounds that keep the repository easy to read: the length of lines,
// the entries of a folder, the methods of a type, the exported names, and the third-party packages
// that a small program links.
//
//	go run ./scripts/structure          print the table and exit 1 if a bound is broken
//	go run ./scripts/structure -names   print the exported names, as names.txt lists them
//
// names.txt lists every exported name of public packages, without fields and methods of interfaces.
// A name that is not in
// the list fails the check: add it by hand, in a commit that says who needs it.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

//go:embed names.txt
var listed string

// The bounds.
const (
	maxColumns = 120 // of a line, with tabs of 4
	maxEntries = 40  // of a folder
	maxMethods = 20  // of a type, exported or not
	maxNames   = 700 // exported, outside of npu/op and npu/dtype, which are lists by nature
)

// maxLinked bounds the third-party packages that a program linking this package gets.
var maxLinked = map[string]int{"./model": 20, "./gate": 10}

func main() {
	names := flag.Bool("names", false, "print the exported names")
	flag.Parse()
	if err := run(*names); err != nil {
		fmt.Fprintln(os.Stderr, "structure:", err)
		os.Exit(1)
	}
}

func run(names bool) error {
	files, err := trackedFiles()
	if err != nil {
		return err
	}
	a, err := readAPI(files)
	if err != nil {
		return err
	}
	if names {
		fmt.Println(strings.Join(a.names, "\n"))
		return nil
	}
	var broken []string
	lines, err := longLines(files)
	if err != nil {
		return err
	}
	broken = append(broken, lines...)
	folder, entries, full := fullFolders(files)
	broken = append(broken, full...)
	broken = append(broken, unlisted(a.names, listed)...)
	counted := 0
	for _, name := range a.names {
		pkg, _, _ := strings.Cut(name, " ")
		if pkg != "npu/op" && pkg != "npu/dtype" {
			counted++
		}
	}
	if counted > maxNames {
		broken = append(broken, fmt.Sprintf("%d exported names, at most %d", counted, maxNames))
	}
	typ, methods := "", 0
	for t, n := range a.methods {
		if n > methods || n == methods && t < typ {
			typ, methods = t, n
		}
		if n > maxMethods {
			broken = append(broken, fmt.Sprintf("%s: %d methods, at most %d", t, n, maxMethods))
		}
	}

	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "bound\tat most\tis\t")
	fmt.Fprintf(w, "lines over %d columns\t0\t%d\t\n", maxColumns, len(lines))
	fmt.Fprintf(w, "entries of a folder\t%d\t%d\t%s\n", maxEntries, entries, folder)
	fmt.Fprintf(w, "methods of a type\t%d\t%d\t%s\n", maxMethods, methods, typ)
	fmt.Fprintf(w, "exported names\t%d\t%d\twithout npu/op and npu/dtype\n", maxNames, counted)
	for _, pkg := range []string{"./gate", "./model"} {
		n, err := linked(pkg)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "third-party packages\t%d\t%d\tlinked by %s\n", maxLinked[pkg], n, pkg)
		if n > maxLinked[pkg] {
			broken = append(broken, fmt.Sprintf("%s links %d third-party packages, at most %d", pkg, n, maxLinked[pkg]))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(broken) == 0 {
		return nil
	}
	slices.Sort(broken)
	const shown = 40
	if len(broken) > shown {
		broken = append(broken[:shown], fmt.Sprintf("and %d more", len(broken)-shown))
	}
	return fmt.Errorf("bounds are broken:\n  %s", strings.Join(broken, "\n  "))
}
