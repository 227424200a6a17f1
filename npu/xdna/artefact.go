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
	"sync"

	"github.com/npukit/npukit/internal/readfile"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/xdna/internal/controlcode"
)

// Artefact is a compiled program on disk, as described by its manifest.
type Artefact struct {
	Name         string // name of the program and of its manifest entry
	Binary       string // path of the full ELF or the xclbin
	Instructions string // path of an xclbin's instruction stream; "" for an ELF
	Kernel       string // "main:o_ffn" in an ELF, "MLIR_AIE" in an xclbin

	// Optional extensions of MLIR-AIR's manifest: the size of every argument in bytes, the head
	// layout of attention ("seq-first" or "head-first"), and the mapping of every launch. Both
	// layouts have the same size, so a wrong one produces garbage without an error. Sizes and layout
	// that are not stated are read from the binary; see [Device.Load].
	Arguments []int
	Layout    string
	Mapping   []npu.Mapping

	control sync.Once
	usage   *controlcode.Program // what the binary does with its arguments; see readUsage
	unread  error
}

// isELF reports whether the artefact is a full ELF. Otherwise it is an xclbin with an instruction
// stream.
func (a *Artefact) isELF() bool { return a.Instructions == "" }

// instance returns the program's name inside an ELF, e.g. "o_ffn" for the kernel "main:o_ffn".
func (a *Artefact) instance() string {
	_, instance, _ := strings.Cut(a.Kernel, ":")
	return instance
}

// Artefacts holds the artefacts of one or more folders.
type Artefacts struct {
	Dirs      []string          // folders that have a manifest
	Toolchain map[string]string // tools that built the last folder, for logging only
	byName    map[string]*Artefact
}

// Names returns the sorted names of all artefacts.
func (s *Artefacts) Names() []string { return slices.Sorted(maps.Keys(s.byName)) }

// Get returns the artefact with the given name, or nil if there is none.
func (s *Artefacts) Get(name string) *Artefact { return s.byName[name] }

// Folders in a build of MLIR-AIR's language models, and the index file in each.
const manifestName = "manifest.json"

var cacheFolders = []string{"prefill_kernel_cache", "decode_kernel_cache"}

// ReadArtefacts reads the manifests of dir and of its subfolders prefill_kernel_cache and
// decode_kernel_cache, the layout that MLIR-AIR's language models create in build_peano. Only the
// base name of a path in a manifest is used: files are expected next to the manifest. ReadArtefacts
// returns an error if there is no manifest. It does not check that the files exist;
// [Device.Load] and [Artefact.Check] do.
func ReadArtefacts(dir string) (*Artefacts, error) {
	s := &Artefacts{byName: map[string]*Artefact{}}
	for _, sub := range append([]string{"."}, cacheFolders...) {
		err := s.read(filepath.Join(dir, sub))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if len(s.Dirs) == 0 {
		return nil, fmt.Errorf("npu/xdna: %s: no %s in it or in its folders %s: use the folder "+
			"that MLIR-AIR's make wrote, build_peano",
			dir, manifestName, strings.Join(cacheFolders, " and "))
	}
	return s, nil
}

// Limits of a manifest, far above real ones: a build has about ten programs of a few hundred
// kilobytes each.
const (
	maxManifest  = 4 << 20
	maxEntries   = 4096
	maxArguments = 256
	maxBinary    = 256 << 20
)

// manifest is MLIR-AIR's manifest.json with the extensions of this package.
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

	Mapping []npu.Mapping `json:"mapping,omitempty"`
}

// read adds the artefacts of one folder.
func (s *Artefacts) read(dir string) error {
	path := filepath.Join(dir, manifestName)
	data, err := readfile.Regular(path, maxManifest)
	if err != nil {
		return fmt.Errorf("npu/xdna: artefact manifest: %w", err)
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
			return fmt.Errorf("npu/xdna: %s: duplicate program %q, also in %s", path, name,
				filepath.Dir(old.Binary))
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
		return nil, errors.New("null entry")
	}
	if name == "" || strings.ContainsAny(name, "/\\\x00") {
		return nil, errors.New("invalid program name")
	}
	a = &Artefact{Name: name, Kernel: e.Kernel, Arguments: e.Arguments, Layout: e.Layout, Mapping: e.Mapping}
	if a.Binary, err = siblingPath(dir, e.OutputBinary); err != nil {
		return nil, fmt.Errorf("output_binary: %w", err)
	}
	if strings.ContainsRune(e.Kernel, 0) {
		return nil, fmt.Errorf("kernel %q: name contains NUL", e.Kernel)
	}
	kernel, instance, whole := strings.Cut(e.Kernel, ":")
	switch ext := filepath.Ext(a.Binary); ext {
	case ".elf": // an ELF contains its instructions; MLIR-AIR may still set insts
		if !whole || kernel == "" || instance == "" {
			return nil, fmt.Errorf("kernel %q: want kernel:instance for an ELF, e.g. main:%s",
				e.Kernel, name)
		}
	case ".xclbin":
		if kernel == "" || whole {
			return nil, fmt.Errorf("kernel %q: want a plain name for an xclbin, e.g. MLIR_AIE", e.Kernel)
		}
		if e.Insts == nil {
			return nil, errors.New("insts: missing: an xclbin needs an instruction stream")
		}
		if a.Instructions, err = siblingPath(dir, *e.Insts); err != nil {
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
			return nil, fmt.Errorf("arguments[%d]: invalid size of %d bytes", i, n)
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

// siblingPath returns the file in dir that has the base name of path, which may be a path on
// another machine.
func siblingPath(dir, path string) (string, error) {
	base := path[strings.LastIndexAny(path, "/\\")+1:]
	if base == "" || base == "." || base == ".." || strings.ContainsRune(base, 0) {
		return "", fmt.Errorf("%q is not a file name", path)
	}
	return filepath.Join(dir, base), nil
}

// readUsage reads from the binary what the program does with its arguments. An error means that the
// binary cannot be understood, which need not be a fault of it.
func (a *Artefact) readUsage() (*controlcode.Program, error) {
	a.control.Do(func() {
		file := a.Binary
		if !a.isELF() {
			file = a.Instructions
		}
		data, err := readfile.Regular(file, maxBinary)
		if err != nil {
			a.unread = err
			return
		}
		if a.isELF() {
			a.usage, a.unread = controlcode.ELF(data, a.Kernel)
		} else {
			a.usage, a.unread = controlcode.Instructions(data)
		}
	})
	return a.usage, a.unread
}

// Check returns an error if a file of the artefact is missing or cannot be a file of its type.
func (a *Artefact) Check() error {
	if err := checkFile(a.Binary, 4); err != nil {
		return err
	}
	if a.isELF() {
		return nil
	}
	return checkFile(a.Instructions, 4)
}

func checkFile(path string, multiple int64) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Errorf("npu/xdna: %w: listed in the manifest; copy the whole folder", err)
	case !info.Mode().IsRegular() || info.Size() < 1 || info.Size() > maxBinary:
		return fmt.Errorf("npu/xdna: %s: %s of %d bytes, want a file of 1 to %d", path,
			info.Mode().Type(), info.Size(), maxBinary)
	case info.Size()%multiple != 0 && strings.HasSuffix(path, ".bin"):
		return fmt.Errorf("npu/xdna: %s: %d bytes are not a multiple of a 32-bit word", path, info.Size())
	}
	return nil
}
