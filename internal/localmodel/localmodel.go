// Package localmodel finds the models of this machine by path or by name, and suggests names for a typo.
package localmodel

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/npukit/npukit/model/checkpoint"
)

// CacheFolder is where models live that are called by name: $NPUKIT_CACHE/models, else
// npukit/models in the user's cache folder. The command only ever reads it.
func CacheFolder() (string, error) {
	dir := os.Getenv("NPUKIT_CACHE")
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("there is no cache folder: %w (NPUKIT_CACHE can name one)", err)
		}
		dir = filepath.Join(base, "npukit")
	}
	if !filepath.IsAbs(dir) { // it would be another one in each folder that a person works in
		return "", fmt.Errorf("the cache folder is a relative path: %s (set NPUKIT_CACHE to an absolute one)", dir)
	}
	return filepath.Join(dir, "models"), nil
}

// Cached lists the models in the cache by name: folders with a config.json or snapshots, and
// .gguf files without their ending. A cache that is not there is empty.
func Cached(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading the model cache: %w", err)
	}
	var names []string
	for _, e := range entries {
		name, gguf := strings.CutSuffix(e.Name(), ".gguf")
		if folder := filepath.Join(dir, name); !gguf && !Exists(filepath.Join(folder, "config.json")) &&
			!Exists(filepath.Join(folder, "snapshots")) {
			continue
		}
		names = append(names, name)
	}
	return slices.Compact(names), nil
}

func Exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Find turns the MODEL of a command line into a path: one that exists, else a name in the
// cache, with or without .gguf. A folder of the Hugging Face cache leads to its snapshot. For
// anything else the error suggests what could be meant.
func Find(arg string) (string, error) {
	_, pathErr := os.Stat(arg)
	if pathErr == nil {
		return checkpoint.Resolve(arg)
	}
	if !errors.Is(pathErr, fs.ErrNotExist) {
		return "", pathErr
	}
	dir, err := CacheFolder()
	if err != nil {
		return "", err
	}
	if filepath.IsLocal(arg) {
		for _, name := range []string{arg, arg + ".gguf"} {
			if path := filepath.Join(dir, name); Exists(path) {
				return checkpoint.Resolve(path)
			}
		}
	}
	names, err := Cached(dir)
	if err != nil {
		return "", fmt.Errorf("there is no model %q here, and %w", arg, err)
	}
	return "", &unknownError{arg: arg, dir: dir, cached: names}
}

// IsGGUF reports whether a path is a GGUF file, by its content: not all have the ending. A pipe is
// none, and what is read of it here would be lost.
func IsGGUF(path string) bool {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	magic := make([]byte, 4)
	_, err = io.ReadFull(f, magic)
	return err == nil && string(magic) == "GGUF"
}

// unknownError is a MODEL that is neither a path nor in the cache.
type unknownError struct {
	arg, dir string
	cached   []string
}

func (e *unknownError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "there is no model %q, neither as a path nor in the cache", e.arg)
	if near := Nearest(e.arg, e.cached); len(near) > 0 {
		fmt.Fprintf(&b, "\nDid you mean %s?", strings.Join(near, " or "))
	}
	if len(e.cached) == 0 {
		fmt.Fprintf(&b, "\nThe cache, %s, is empty: `make demo` in a clone of npukit fetches a small model;\nany "+
			"Hugging Face folder or .gguf file put there"+
			" can be called by its name.", e.dir)
		return b.String()
	}
	fmt.Fprintf(&b, "\nIn the cache, %s:", e.dir)
	for _, name := range e.cached {
		b.WriteString("\n  " + name)
	}
	return b.String()
}

// Nearest gives the names that a mistyped one could mean, the nearest first, three at most.
func Nearest(typed string, names []string) []string {
	typed = strings.ToLower(strings.TrimSuffix(filepath.Base(typed), ".gguf"))
	type near struct {
		name     string
		distance int
	}
	var found []near
	for _, name := range names {
		lower := strings.ToLower(name)
		d := editDistance(typed, lower)
		switch {
		case len(typed) >= 3 && strings.Contains(lower, typed): // a part of the name is as good as one mistyped letter
			d = min(d, 1)
		case d > max(2, len(typed)/3): // a third of the letters wrong is another word
			continue
		}
		found = append(found, near{name, d})
	}
	slices.SortStableFunc(found, func(a, b near) int { return a.distance - b.distance })
	var list []string
	for _, f := range found[:min(3, len(found))] {
		list = append(list, f.name)
	}
	return list
}

// editDistance is the number of bytes to insert, delete or replace to get from a to b
// (Levenshtein), row by row of the usual table.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1) // row[j] is the distance of what is seen of a from b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
