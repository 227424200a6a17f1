// Command words prints how often the repository's comments use the words that tell plain
// engineering English from a translation, beside the range that well-known Go projects have.
//
//	go run ./scripts/words              the table for the whole tree
//	go run ./scripts/words npu model    for some folders
//	go run ./scripts/words -check       exit 1 if a checked word is outside twice its range
//
// With -check, "use" and "for example" are printed and not judged: a text without them can be plain.
// The ranges were measured on 350,000 words of comments in the Go standard library, Pebble, gonum
// and the MCP go-sdk. The table finds habits; it does not judge a sentence.
package main

import (
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/tabwriter"
)

// word is one row of the table: its spellings, and its range per 10,000 words of comments.
type word struct {
	name      string
	spellings []string
	low, high float64
	checked   bool // by -check; others are only printed
}

var words = []word{
	{"what", []string{"what"}, 0.5, 2.8, true},
	{"behind", []string{"behind"}, 0, 1.4, true},
	{"beside", []string{"beside"}, 0, 1.4, true},
	{"whoever, whatever", []string{"whoever", "whatever"}, 0, 0.5, true},
	{"says", []string{"says"}, 0, 2, true},
	{"gives", []string{"gives"}, 0, 2, true},
	{"lies", []string{"lies"}, 0, 2, true},
	{"return(s)", []string{"return", "returns"}, 57, 103, true},
	{"if", []string{"if"}, 92, 158, true},
	{"use(s)", []string{"use", "uses"}, 47, 71, false},
	{"for example, e.g.", []string{"for example", "e.g."}, 5, 13, false},
}

func main() {
	check := flag.Bool("check", false, "exit 1 if a word is outside twice its range")
	flag.Parse()
	roots := flag.Args()
	if len(roots) == 0 {
		roots = []string{"."}
	}
	text, err := comments(roots)
	if err != nil {
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(1)
	}
	if outside := table(os.Stdout, text); *check && outside > 0 {
		fmt.Fprintf(os.Stderr, "words: %d rows are outside twice their range\n", outside)
		os.Exit(1)
	}
}

// comments returns the text of all comments in the Go and C files under the roots.
func comments(roots []string) (string, error) {
	var b strings.Builder
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() {
				if name := d.Name(); name == "testdata" || len(name) > 1 && name[0] == '.' && name != ".." {
					return filepath.SkipDir
				}
				return nil
			}
			extract := map[string]func([]byte) string{".go": goComments, ".c": cComments, ".h": cComments,
				".cpp": cComments}
			f := extract[filepath.Ext(path)]
			if f == nil {
				return nil
			}
			src, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			b.WriteString(f(src))
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

func goComments(src []byte) string {
	var (
		b strings.Builder
		s scanner.Scanner
	)
	set := token.NewFileSet()
	s.Init(set.AddFile("", set.Base(), len(src)), src, nil, scanner.ScanComments)
	for {
		_, tok, lit := s.Scan()
		if tok == token.EOF {
			return b.String()
		}
		if tok == token.COMMENT && !strings.HasPrefix(lit, "//go:") {
			b.WriteString(lit + "\n")
		}
	}
}

// cComment matches a comment of C, or a string, whose slashes are none.
var cComment = regexp.MustCompile(`(?s)"(?:\\.|[^"\\])*"|/\*.*?\*/|//[^\n]*`)

func cComments(src []byte) string {
	var b strings.Builder
	for _, m := range cComment.FindAllString(string(src), -1) {
		if m[0] == '/' {
			b.WriteString(m + "\n")
		}
	}
	return b.String()
}

var wordPattern = regexp.MustCompile(`[A-Za-z]+(?:'[a-z]+)?`)

// table prints the rows and returns how many of the checked ones are outside twice their range.
func table(w io.Writer, text string) (outside int) {
	total := len(wordPattern.FindAllString(text, -1))
	fmt.Fprintf(w, "%d words of comments; per 10,000:\n", total)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range words {
		n := 0
		for _, s := range row.spellings {
			n += len(regexp.MustCompile(`(?i)\b`+regexp.QuoteMeta(s)).FindAllString(text, -1))
			// A spelling that ends in a letter must end the word too: "if" is not "iffy".
			if last := s[len(s)-1]; last != '.' {
				n -= len(regexp.MustCompile(`(?i)\b`+regexp.QuoteMeta(s)+`[a-z]`).FindAllString(text, -1))
			}
		}
		rate := float64(n) * 10000 / float64(max(total, 1))
		note := ""
		if rate > 2*row.high || rate < row.low/2 {
			note = "outside twice the range"
			if row.checked {
				outside++
			}
		}
		fmt.Fprintf(tw, "  %s\t%d\t%.1f\t%g to %g\t%s\n", row.name, n, rate, row.low, row.high, note)
	}
	tw.Flush()
	return outside
}
