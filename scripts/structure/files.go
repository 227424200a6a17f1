package main

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// trackedFiles returns the files that git tracks or would add, relative to the working directory,
// without test data.
func trackedFiles() ([]string, error) {
	out, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w; run this in a clone of the repository", err)
	}
	var files []string
	for file := range strings.Lines(string(out)) {
		file = strings.TrimSuffix(file, "\n")
		if _, err := os.Lstat(file); err != nil || slices.Contains(strings.Split(file, "/"), "testdata") {
			continue // deleted in the working tree, or data
		}
		files = append(files, file)
	}
	return files, nil
}

// wrapped reports whether lines of the file are subject to the bound on columns.
func wrapped(file string) bool {
	switch filepath.Ext(file) {
	case ".go", ".c", ".h", ".cpp", ".hpp", ".inc", ".py", ".sh", ".awk", ".md":
		return true
	}
	return path.Base(file) == "Makefile" || file == ".ci/run"
}

// longLines returns a message for each line that is too long. Rows of Markdown tables cannot be
// wrapped and are left out.
func longLines(files []string) (messages []string, err error) {
	for _, file := range files {
		if !wrapped(file) {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		number := 0
		for line := range strings.Lines(string(data)) {
			number++
			line = strings.TrimSuffix(line, "\n")
			columns := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
			if columns <= maxColumns || filepath.Ext(file) == ".md" && strings.HasPrefix(line, "|") {
				continue
			}
			messages = append(messages, fmt.Sprintf("%s:%d: %d columns, at most %d", file, number, columns, maxColumns))
		}
	}
	return messages, nil
}

// fullFolders returns the folder with the most entries, and a message for each that has too many.
func fullFolders(files []string) (folder string, entries int, messages []string) {
	in := map[string]map[string]bool{}
	for _, file := range files {
		for file != "." {
			dir := path.Dir(file)
			if in[dir] == nil {
				in[dir] = map[string]bool{}
			}
			in[dir][file] = true
			file = dir
		}
	}
	for dir, list := range in {
		if n := len(list); n > entries || n == entries && dir < folder {
			folder, entries = dir, n
		}
		if len(list) > maxEntries {
			messages = append(messages, fmt.Sprintf("%s: %d entries, at most %d", dir, len(list), maxEntries))
		}
	}
	return folder, entries, messages
}

// linked returns how many packages outside of this module and of the standard library pkg depends
// on, directly or not.
func linked(pkg string) (int, error) {
	cmd := exec.Command("go", "list", "-deps", "-f",
		"{{if not .Standard}}{{if not .Module.Main}}{{.ImportPath}}{{end}}{{end}}", pkg)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("go list -deps %s: %w", pkg, err)
	}
	return len(strings.Fields(string(out))), nil
}
