package xdna

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/xrttest"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/npu/xdna/internal/elftest"
)

// folder writes files and creates their folders.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// ReadArtefacts reads a build of MLIR-AIR that was copied from another machine, with absolute and
// relative paths of that machine, an unknown toolchain and two folders.
func TestMLIRAIRFolders(t *testing.T) {
	dir := folder(t, map[string]string{
		"prefill_kernel_cache/manifest.json": `{
  "_toolchain": {"llvm-aie": "21.0", "peano_clang": "12345:1750000000", "aie_opt": "unset"},
  "entries": {
    "flash_attn": {"output_binary": "prefill_kernel_cache/flash_attn.elf",
      "kernel": "main:attention_bf16", "insts": null},
    "o_ffn": {"output_binary": "/home/somebody/build_peano/prefill_kernel_cache/o_ffn.elf",
      "kernel": "main:o_ffn", "insts": "o_ffn.insts.bin"}
  }
}`,
		"prefill_kernel_cache/flash_attn.elf": "x", "prefill_kernel_cache/o_ffn.elf": "x",
		"decode_kernel_cache/manifest.json": `{"entries": {
    "vadd": {"output_binary": "C:\\build\\vadd.xclbin", "kernel": "MLIR_AIE", "insts": "C:\\build\\vadd.insts.bin"},
			"gone": {"output_binary": "gone.elf", "kernel": "main:gone"}}}`,
		"decode_kernel_cache/vadd.xclbin": "x", "decode_kernel_cache/vadd.insts.bin": "12345678",
	})
	s, err := ReadArtefacts(dir)
	if err != nil {
		t.Fatal(err)
	}
	if names := s.Names(); !slices.Equal(names, []string{"flash_attn", "gone", "o_ffn", "vadd"}) {
		t.Errorf("artefacts %v", names)
	}
	if a := s.Get("o_ffn"); a.Binary != filepath.Join(dir, "prefill_kernel_cache", "o_ffn.elf") ||
		!a.isELF() || a.instance() != "o_ffn" || a.Check() != nil {
		t.Errorf("%+v: %v", a, a.Check())
	}
	if a := s.Get("vadd"); a.isELF() || a.Instructions != filepath.Join(dir, "decode_kernel_cache",
		"vadd.insts.bin") || a.Check() != nil {
		t.Errorf("%+v: %v", a, a.Check())
	}
	if err := s.Get("gone").Check(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing binary: %v", err)
	}
	// One of the two folders alone is accepted.
	if s, err := ReadArtefacts(filepath.Join(dir, "decode_kernel_cache")); err != nil ||
		len(s.Names()) != 2 {
		t.Errorf("a single folder: %v, %v", s, err)
	}
}

// A manifest is untrusted input: errors name the entry, and no path escapes the folder.
func TestHostileManifests(t *testing.T) {
	entry := func(text string) string { return `{"entries": {"add": ` + text + `}}` }
	for name, tc := range map[string]struct{ manifest, want string }{
		"no JSON":      {`{"entries": `, "manifest.json"},
		"another JSON": {`[1, 2]`, "manifest.json"},
		"no entries":   {`{"_toolchain": {"a": "b"}}`, "0 entries"},
		"null":         {entry(`null`), "null"},
		"no binary":    {entry(`{"kernel": "main:add"}`), "output_binary"},
		"a folder as binary": {entry(`{"kernel": "main:add", "output_binary": "/etc/.."}`),
			"not a file name"},
		"a binary of other kind": {entry(`{"kernel": "main:add", "output_binary": "add.so"}`), ".elf"},
		"no kernel":              {entry(`{"output_binary": "add.elf"}`), "kernel:instance"},
		"no instance": {entry(`{"output_binary": "add.elf", "kernel": "main:"}`),
			"kernel:instance"},
		"an xclbin's instance": {entry(`{"output_binary": "add.xclbin",` +
			` "kernel": "main:add", "insts": "a.bin"}`), "MLIR_AIE"},
		"no instructions": {entry(`{"output_binary": "add.xclbin",` +
			` "kernel": "MLIR_AIE"}`), "insts"},
		"a NUL": {entry(`{"output_binary": "add.elf",` +
			` "kernel": "main:a\u0000d"}`), "NUL"},
		"a NUL in the path": {entry(`{"output_binary": "a\u0000.elf", "kernel": "main:add"}`),
			"not a file name"},
		"negative sizes": {entry(`{"output_binary": "add.elf",` +
			` "kernel": "main:add", "arguments": [4, -4]}`), "-4 bytes"},
		"sizes out of range": {entry(`{"output_binary": "add.elf",` +
			` "kernel": "main:add", "arguments": [99999999999]}`), "99999999999 bytes"},
		"sizes of another type": {entry(`{"output_binary": "add.elf",` +
			` "kernel": "main:add", "arguments": ["4"]}`), "arguments"},
		"too many arguments": {entry(`{"output_binary": "add.elf", "kernel": "main:add", ` +
			`"arguments": [` + strings.Repeat("4,", 300) + `4]}`), "301"},
		"an unknown layout": {entry(`{"output_binary": "add.elf",` +
			` "kernel": "main:add", "layout": "sideways"}`), "sideways"},
		"a path as name": {`{"entries": {"../add": {"output_binary": "add.elf", "kernel": "main:add"}}}`,
			"invalid program name"},
		"far too large": {`{"entries": {"add": {"kernel": "` + strings.Repeat("x",
			maxManifest) + `"}}}`, "too large"},
	} {
		_, err := ReadArtefacts(folder(t, map[string]string{manifestName: tc.manifest, "add.elf": "x"}))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	if _, err := ReadArtefacts(t.TempDir()); err == nil || !strings.Contains(err.Error(), "build_peano") {
		t.Errorf("an empty folder: %v", err)
	}
	dir := folder(t,
		map[string]string{manifestName: entry(`{"kernel": "main:add", "output_binary": "../../../../etc/add.elf"}`),
			"add.elf": "x"})
	if s, err := ReadArtefacts(dir); err != nil || s.Get("add").Binary != filepath.Join(dir, "add.elf") {
		t.Errorf("escaping path: %v, %v", s, err)
	}
	twice := `{"entries": {"add": {"output_binary": "add.elf", "kernel": "main:add"}}}`
	if _, err := ReadArtefacts(folder(t, map[string]string{manifestName: twice,
		cacheFolders[0] + "/" + manifestName: twice})); err == nil {
		t.Error("a duplicate program was accepted")
	}
}

// Reading any manifest returns artefacts or an error.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"_toolchain": {"a": 1}, "entries": {"add": {"output_binary": "add.elf",
		"kernel": "main:add", "insts": null, "arguments": [4], "layout": "head-first"}}}`))
	f.Add([]byte(`{"entries": {"x": {"output_binary": "..\\x.xclbin", "kernel": "K", "insts": "/i"}}}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, manifestName), data, 0o666); err != nil {
			t.Fatal(err)
		}
		s, err := ReadArtefacts(dir)
		if err != nil {
			return
		}
		for _, name := range s.Names() {
			if a := s.Get(name); filepath.Dir(a.Binary) != dir || !a.isELF() &&
				filepath.Dir(a.Instructions) != dir {
				t.Errorf("%+v escapes its folder", a)
			}
		}
	})
}

// attention returns a program with the given head layout.
func attention(headFirst bool) *npu.Program {
	p := npu.NewProgram("flash_attn")
	p.Instance = "attention_bf16"
	o := op.Attention{Rows: 64, Heads: 2, KVHeads: 1, HeadDim: 64, HeadFirst: headFirst}
	shape := func(heads int) []int {
		if headFirst {
			return []int{heads, 64, 64}
		}
		return []int{64, heads * 64}
	}
	q, k := p.In("q", dtype.BF16, shape(2)...), p.In("k", dtype.BF16, shape(1)...)
	v, y := p.In("v", dtype.BF16, shape(1)...), p.Out("y", dtype.BF16, shape(2)...)
	p.Launch("attn.core", o, q, k, v, y)
	return p
}

// transfers returns instructions that transfer every argument of p, but n bytes of argument i.
func transfers(p *npu.Program, i, n int) *xrttest.Stream {
	s := xrttest.NewELFStream(1)
	for k, a := range p.Args {
		size := argBytes(a)
		if k == i {
			size = n
		}
		if size > 0 {
			s.Transfer(k, 0, uint32(size))
		}
	}
	return s
}

// queries returns instructions of attention, whose queries have rows of n bytes with a pitch.
func queries(n, pitch uint32) *xrttest.Stream {
	p := attention(false)
	s := transfers(p, 0, 0)
	size := uint32(argBytes(p.Args[0]))
	for at := uint32(0); at < pitch; at += n {
		s.Rows(0, at, size/pitch, n, pitch)
	}
	return s
}

// An artefact must have the program's signature, because the array checks nothing. What the
// manifest does not state is read from the binary.
func TestArtefactsMatchPrograms(t *testing.T) {
	add, flash, heads := addProgram("add"), attention(false), attention(true)
	long := addProgram("add.512")
	const sizes = `, "arguments": [128, 128, 128, 128]`
	const attn = `"kernel": "main:attention_bf16"`
	whole := func(p *npu.Program) *xrttest.Stream { return transfers(p, -1, 0) }
	for name, tc := range map[string]struct {
		p      *npu.Program
		entry  string
		stream *xrttest.Stream // nil for a binary that cannot be read
		args   int             // of the kernel; 0 for the program's
		want   string          // in the error, "" for none
	}{
		"as published":            {add, `"kernel": "main:add"`, whole(add), 0, ""},
		"with sizes":              {add, `"kernel": "main:add"` + sizes, whole(add), 0, ""},
		"unreadable, with sizes":  {add, `"kernel": "main:add"` + sizes, nil, 0, ""},
		"unreadable":              {add, `"kernel": "main:add"`, nil, 0, `add "arguments"`},
		"the length in its name":  {long, `"kernel": "main:add"` + sizes, whole(long), 0, ""},
		"another instance":        {add, `"kernel": "main:sub"`, whole(add), 0, `instance is "sub"`},
		"an argument less":        {add, `"kernel": "main:add"`, transfers(add, 3, 0), 3, "kernel has 3 arguments"},
		"an argument more":        {add, `"kernel": "main:add"`, whole(add).Transfer(4, 0, 4), 5, "uses argument 4"},
		"one more that is unused": {add, `"kernel": "main:add"`, whole(add), 8, ""},
		"sizes for an argument less": {add, `"kernel": "main:add", "arguments": [128, 128, 128]`, whole(add), 0,
			"3 arguments"},
		"other sizes": {add, `"kernel": "main:add", "arguments": [128, 128, 128, 256]`, whole(add), 0,
			"argument 3 has 256 bytes"},
		"a shorter argument": {add, `"kernel": "main:add"`, transfers(add, 1, 64),
			0, "reach byte 64 of argument 1"},
		"a longer argument": {add, `"kernel": "main:add"`, transfers(add, 1, 132), 0, "reach byte 132"},
		"a longer one, against sizes": {add, `"kernel": "main:add"` + sizes, transfers(add, 1, 132),
			0, "reach byte 132"},
		"its name as instance": {flash, `"kernel": "main:flash_attn"`, queries(128, 256),
			0, `needs "attention_bf16"`},
		"rows first":                        {flash, attn + `, "layout": "seq-first"`, whole(flash), 0, ""},
		"heads first":                       {heads, attn + `, "layout": "head-first"`, whole(heads), 0, ""},
		"heads first, plan is not":          {flash, attn + `, "layout": "head-first"`, whole(flash), 0, "noise"},
		"rows first, plan is not":           {heads, attn + `, "layout": "seq-first"`, whole(heads), 0, "noise"},
		"rows first, read":                  {flash, attn, queries(128, 256), 0, ""},
		"heads first, read":                 {heads, attn, queries(1024, 8192), 0, ""},
		"heads first, read, plan is not":    {flash, attn, queries(1024, 8192), 0, "noise"},
		"rows first, read, plan is not":     {heads, attn, queries(128, 256), 0, "noise"},
		"one head after the other in a row": {flash, attn, queries(64, 128), 0, `add "layout": "seq-first"`},
		"heads first as stated, rows first as transferred": {heads, attn + `, "layout": "head-first"`,
			queries(128, 256), 0, "its transfers are seq-first"},
		"neither":                 {flash, attn, whole(flash), 0, `add "layout": "seq-first"`},
		"the mapping of the plan": {add, `"kernel": "main:add", "mapping": [{"tile": []}]`, whole(add), 0, ""},
		"another mapping": {add, `"kernel": "main:add", "mapping": [{"variant": "scalar"}]`, whole(add),
			0, "scalar"},
		"the mapping of too many launches": {add, `"kernel": "main:add", "mapping": [{}, {}]`, whole(add),
			0, "2 launches"},
	} {
		binary := "x"
		if tc.stream != nil {
			args := tc.args
			if args == 0 {
				args = len(tc.p.Args)
			}
			other := xrttest.NewELFStream(2).Transfer(0, 0, 4)
			binary = string(elftest.Write(t, args, elftest.Instance{Name: "other", Stream: other.Bytes()},
				elftest.Instance{Name: instanceOf(tc.p), Stream: tc.stream.Bytes()},
				elftest.Instance{Name: "add", Stream: tc.stream.Bytes()}))
		}
		text := fmt.Sprintf(`{"entries": {%q: {"output_binary": "p.elf", %s}}}`, tc.p.Name, tc.entry)
		s, err := ReadArtefacts(folder(t, map[string]string{manifestName: text, "p.elf": binary}))
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.find(tc.p)
		if tc.want == "" && err != nil || tc.want != "" &&
			(err == nil || !strings.Contains(err.Error(), tc.want) || !errors.Is(err, ErrMismatch)) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// A folder's artefact that does not match is compiled instead, if there is a compiler.
func TestCompilesWhatDoesNotMatch(t *testing.T) {
	p := addProgram("add")
	dir := folder(t, map[string]string{"add.elf": "x",
		manifestName: `{"entries": {"add": {"output_binary": "add.elf", "kernel": "main:add", "arguments": [4]}}}`})
	f := &fake{array: newArray(t)}
	f.array.learn(t, p)
	gone := folder(t, map[string]string{
		manifestName: `{"entries": {"add": {"output_binary": "add.elf", "kernel": "main:add"}}}`})
	for _, command := range [][]string{nil, {"false"}, {"gone"}} {
		o := Options{Artefacts: dir, Lock: filepath.Join(t.TempDir(), "npu.lock")}
		if command != nil {
			o.Compile = &Compiler{Command: []string{"false"}, Cache: t.TempDir()}
			if command[0] == "gone" {
				o.Artefacts = gone // the manifest lists a file that is not there
			}
		}
		d, err := newDevice(f, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeIt(t, d) })
		_, err = d.Load(t.Context(), p)
		if mismatch := errors.Is(err, ErrMismatch) || errors.Is(err, ErrNoArtefact); err == nil ||
			mismatch != (command == nil) {
			t.Errorf("with the compile command %q: %v", command, err)
		}
	}
}

// The JSON description of a program decodes to the same program.
func TestProgramJSON(t *testing.T) {
	for _, p := range []*npu.Program{addProgram("add"), gemvProgram("gemv"), attention(true)} {
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var q npu.Program
		if err := json.Unmarshal(data, &q); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(&q)
		if err != nil || string(again) != string(data) {
			t.Errorf("program %s: %s, then %s", p.Name, data, again)
		}
	}
}
