// Package output formats the command's output: JSON, tables, files, and numbers with units.
package output

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/npukit/npukit/internal/atomicfile"
)

// JSON writes one value over several lines, for something that a person looks at too. It is
// one Write, so that an interrupted command never leaves half a value.
func JSON(w io.Writer, v any) error { return encodeJSON(w, v, "  ") }

// Line writes one value on one line, in one Write.
func Line(w io.Writer, v any) error { return encodeJSON(w, v, "") }

func encodeJSON(w io.Writer, v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // <|im_end|> is to be read
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// File puts a file in place whole: it is written beside its place and renamed. What is there
// and no file, such as /dev/stdout, is written into.
func File(path string, data []byte) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		return errors.Join(err, f.Close())
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // a link stays a link
	}
	return atomicfile.Write(path, data)
}

// CanWrite reports early that a file cannot be written, before the work whose result it is to hold.
func CanWrite(path string) error {
	if path == "-" { // stdout holds what the command prints
		return errors.New("- is no file: name one (a file of that name is ./-)")
	}
	switch info, err := os.Stat(path); {
	case err == nil && info.IsDir():
		return fmt.Errorf("%s is a folder: name a file in it", path)
	case err == nil && !info.Mode().IsRegular():
		return nil // written into, as it is
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a folder", dir)
	}
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // another file, as File does
	var reason *fs.PathError
	if errors.As(err, &reason) {
		return fmt.Errorf("no file can be made in %s: %w", dir, reason.Err)
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// ShellWord writes a path so that a shell takes it for one word.
func ShellWord(path string) string {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("/._-+=:,@%", r)
	}
	if path != "" && strings.IndexFunc(path, func(r rune) bool { return !plain(r) }) < 0 {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// Table writes rows of cells in aligned columns, two spaces apart, with an indent before each row.
func Table(w io.Writer, indent string, rows [][]string) error {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, indent+strings.Join(row, "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil { // an empty last cell leaves spaces
			return err
		}
	}
	return nil
}

// Size writes a number of bytes in decimal units, as files and bandwidths are given: 98.4 MB.
func Size(bytes float64) string { return Scaled(bytes, "B") }

// Scaled writes a number with three digits and the decimal prefix that fits.
func Scaled(v float64, unit string) string {
	for _, p := range []struct {
		factor float64
		prefix string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= p.factor {
			return Digits(v/p.factor) + " " + p.prefix + unit
		}
	}
	return Digits(v) + " " + unit
}

// Digits writes a positive number with three significant digits and never fewer than all digits
// before the point.
func Digits(v float64) string {
	switch {
	case v >= 99.95:
		return Grouped(int64(v + 0.5))
	case v == float64(int64(v)):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// Seconds writes a duration: 0.42 s, 10.6 ms.
func Seconds(d time.Duration) string {
	if d < 100*time.Millisecond {
		return Digits(float64(d)/float64(time.Millisecond)) + " ms"
	}
	return Digits(d.Seconds()) + " s"
}

// Grouped writes a whole number with commas: 134,515,008.
func Grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Count writes a number with its noun: 1 token, 2 tokens, 3 dispatches.
func Count(n int, noun string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "ch"):
		noun += "es"
	default:
		noun += "s"
	}
	return Grouped(int64(n)) + " " + noun
}

// Time writes seconds in the unit that fits: 1.21 s, 13.5 ms, 85 us.
func Time(s float64) string {
	switch {
	case s == 0:
		return "0"
	case s < 1e-3:
		return Digits(1e6*s) + " us"
	case s < 0.1:
		return Digits(1e3*s) + " ms"
	}
	return Digits(s) + " s"
}
