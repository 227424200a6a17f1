package xdna

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/npukit/npukit/internal/readfile"
)

// Artefact is a compiled program on disk, as its manifest describes it.
type Artefact struct {
	Name         string // of its entry in the manifest, which is the name of the program
	Binary       string // path of the full ELF, or of the xclbin
	Instructions string // path of an xclbin's instruction stream; "" for an ELF
	Kernel       string // "main:o_ffn" in an ELF, "MLIR_AIE" in an xclbin

	// What MLIR-AIR's manifests do not say and ours may: bytes of every argument, and how an attention kernel wants its heads ("seq-first" or
	// "head-first"; both have the same sizes, and the wrong one computes noise).
	Arguments []int
	Layout    string
}

// ELF reports whether the artefact is a full ELF; else it is an xclbin with its instructions.
func (a *Artefact) ELF() bool { return a.Instructions == "" }

// Instance is the name of the program inside an ELF: "o_ffn" of the kernel "main:o_ffn".
func (a *Artefact) Instance() string {
	_, instance, _ := strings.Cut(a.Kernel, ":")
	return instance
}

// Artefacts are the artefacts of one or more folders, by name.
type Artefacts struct {
	Dirs      []string          // folders that a manifest was found in
	Toolchain map[string]string // identity of the tools that made the last folder: for a log; other tools make the same programs
	byName    map[string]*Artefact
}

// Names lists the artefacts.
func (s *Artefacts) Names() []string { return slices.Sorted(maps.Keys(s.byName)) }

// Get is the artefact of a name, or nil.
func (s *Artefacts) Get(name string) *Artefact { return s.byName[name] }

// Folders of a build of MLIR-AIR's language models, and the index in each.
const manifestName = "manifest.json"

var cacheFolders = []string{"prefill_kernel_cache", "decode_kernel_cache"}

// ReadArtefacts reads the manifests of a folder: its own, and those of prefill_kernel_cache and decode_kernel_cache in it, which is how
// MLIR-AIR's language models leave them under build_peano. Of the paths in a manifest only the last part counts: the files lie beside it,
// wherever the build lay. A folder without any manifest is an error. Whether the files are there is asked by [Artefacts.Find] and
// [Artefact.Check].
func ReadArtefacts(dir string) (*Artefacts, error) {
	s := &Artefacts{byName: map[string]*Artefact{}}
	for _, sub := range append([]string{"."}, cacheFolders...) {
		err := s.read(filepath.Join(dir, sub))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if len(s.Dirs) == 0 {
		return nil, fmt.Errorf("npu/xdna: %s: no %s in it, nor in its folders %s: give the folder that MLIR-AIR's make wrote them to, build_peano",
			dir, manifestName, strings.Join(cacheFolders, " and "))
	}
	return s, nil
}

// Limits of what a manifest can ask for, far above real ones: a build has some ten programs of some hundred kilobytes each.
const (
	maxManifest  = 4 << 20
	maxEntries   = 4096
	maxArguments = 256
	maxBinary    = 256 << 20
)

// manifest is manifest.json as MLIR-AIR writes it, with the fields that are ours.
type manifest struct {
	Toolchain map[string]any            `json:"_toolchain,omitempty"`
	Entries   map[string]*manifestEntry `json:"entries"`
}

type manifestEntry struct {
	OutputBinary string  `json:"output_binary"`
	Kernel       string  `json:"kernel"`
	Insts        *string `json:"insts"`
	Arguments    []int   `json:"arguments,omitempty"`
	Layout       string  `json:"layout,omitempty"`
}

// read adds the artefacts of one folder.
func (s *Artefacts) read(dir string) error {
	path := filepath.Join(dir, manifestName)
	data, err := readfile.Regular(path, maxManifest)
	if err != nil {
		return fmt.Errorf("npu/xdna: the manifest of artefacts: %w", err)
	}
	var m manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("npu/xdna: %s: %w", path, err)
	}
	if len(m.Entries) == 0 || len(m.Entries) > maxEntries {
		return fmt.Errorf("npu/xdna: %s: %d entries, want 1 to %d", path, len(m.Entries), maxEntries)
	}
	for name, e := range m.Entries {
		a, err := e.artefact(name, dir)
		if err != nil {
			return fmt.Errorf("npu/xdna: %s: entry %q: %w", path, name, err)
		}
		if old := s.byName[name]; old != nil {
			return fmt.Errorf("npu/xdna: %s: there is another %q in %s: which is meant?", path, name, filepath.Dir(old.Binary))
		}
		s.byName[name] = a
	}
	s.Dirs = append(s.Dirs, dir)
	s.Toolchain = map[string]string{}
	for k, v := range m.Toolchain {
		s.Toolchain[k] = fmt.Sprint(v)
	}
	return nil
}

// artefact checks an entry and resolves its paths.
func (e *manifestEntry) artefact(name, dir string) (a *Artefact, err error) {
	if e == nil {
		return nil, errors.New("it is null")
	}
	if name == "" || strings.ContainsAny(name, "/\\\x00") {
		return nil, errors.New("that is not a program's name")
	}
	a = &Artefact{Name: name, Kernel: e.Kernel, Arguments: e.Arguments, Layout: e.Layout}
	if a.Binary, err = beside(dir, e.OutputBinary); err != nil {
		return nil, fmt.Errorf("output_binary: %w", err)
	}
	if strings.ContainsRune(e.Kernel, 0) {
		return nil, fmt.Errorf("kernel %q: a name has no NUL", e.Kernel)
	}
	kernel, instance, whole := strings.Cut(e.Kernel, ":")
	switch ext := filepath.Ext(a.Binary); ext {
	case ".elf": // MLIR-AIR sometimes leaves a path in insts; an ELF has its instructions inside
		if !whole || kernel == "" || instance == "" {
			return nil, fmt.Errorf("kernel %q: a program in an ELF is named kernel:instance, as main:%s", e.Kernel, name)
		}
	case ".xclbin":
		if kernel == "" || whole {
			return nil, fmt.Errorf("kernel %q: a kernel of an xclbin has a plain name, as MLIR_AIE", e.Kernel)
		}
		if e.Insts == nil {
			return nil, errors.New("insts: an xclbin needs its instruction stream")
		}
		if a.Instructions, err = beside(dir, *e.Insts); err != nil {
			return nil, fmt.Errorf("insts: %w", err)
		}
	default:
		return nil, fmt.Errorf("output_binary %q: want a .elf or a .xclbin", e.OutputBinary)
	}
	if len(e.Arguments) > maxArguments {
		return nil, fmt.Errorf("arguments: %d, want at most %d", len(e.Arguments), maxArguments)
	}
	for i, n := range e.Arguments {
		if n < 1 || n > maxBytes {
			return nil, fmt.Errorf("arguments: number %d has %d bytes", i, n)
		}
	}
	if e.Layout != "" && e.Layout != seqFirst && e.Layout != headFirst {
		return nil, fmt.Errorf("layout %q: want %s or %s", e.Layout, seqFirst, headFirst)
	}
	return a, nil
}

const (
	seqFirst  = "seq-first"
	headFirst = "head-first"
)

// beside is the file beside a manifest that a path from another machine names.
func beside(dir, path string) (string, error) {
	base := path[strings.LastIndexAny(path, "/\\")+1:]
	if base == "" || base == "." || base == ".." || strings.ContainsRune(base, 0) {
		return "", fmt.Errorf("%q names no file", path)
	}
	return filepath.Join(dir, base), nil
}

// Check reports files of the artefact that are missing, or cannot be what the manifest says.
func (a *Artefact) Check() error {
	if err := checkFile(a.Binary, 4); err != nil {
		return err
	}
	if a.ELF() {
		return nil
	}
	return checkFile(a.Instructions, 4)
}

func checkFile(path string, multiple int64) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Errorf("npu/xdna: %w: the manifest beside it names it; was the folder copied whole?", err)
	case !info.Mode().IsRegular() || info.Size() < 1 || info.Size() > maxBinary:
		return fmt.Errorf("npu/xdna: %s: %s of %d bytes, want a file of 1 to %d", path, info.Mode().Type(), info.Size(), maxBinary)
	case info.Size()%multiple != 0 && strings.HasSuffix(path, ".bin"):
		return fmt.Errorf("npu/xdna: %s: %d bytes are not a stream of 32-bit words", path, info.Size())
	}
	return nil
}
