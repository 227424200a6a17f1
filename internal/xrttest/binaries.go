package xrttest

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

//go:embed testdata/mlir_aie.xclbin
var xclbin []byte

// Xclbin returns an xclbin in the format of mlir-aie with one kernel, MLIR_AIE. Its arguments are
// opcode, instructions, their length, and up to five data buffers. The array configuration is
// empty.
func Xclbin() []byte { return append([]byte(nil), xclbin...) }

// Instance is a program of a full ELF.
type Instance struct {
	Name   string
	Stream *Stream // from NewELFStream
	Code   []byte  // compiled instructions, used instead of Stream
	// array configuration for all instances, taken from the first instance; nil for an empty one
	PDI []byte
}

// FullELF returns a full ELF with one kernel, main, with nargs buffers, and the given instances. It
// runs AMD's assembler, aiebu-asm, from the XRT packages that the emulator uses, and skips the test
// if it is not available.
func FullELF(tb testing.TB, nargs int, instances ...Instance) []byte {
	tb.Helper()
	type argument struct {
		Name   string `json:"name"`
		Type   string `json:"type"`
		Offset string `json:"offset"`
	}
	type pdi struct {
		ID   int    `json:"id"`
		File string `json:"PDI_file"`
	}
	type instance struct {
		ID   string `json:"id"`
		File string `json:"TXN_ctrl_code_file"`
	}
	type kernel struct {
		Name      string     `json:"name"`
		Arguments []argument `json:"arguments"`
		PDIs      []pdi      `json:"PDIs"`
		Instances []instance `json:"instance"`
	}
	dir := tb.TempDir()
	k := kernel{Name: "main", PDIs: []pdi{{1, "array.pdi"}}}
	files := map[string][]byte{"array.pdi": make([]byte, 4096)}
	for i := range nargs {
		k.Arguments = append(k.Arguments, argument{fmt.Sprintf("arg_%d", i), "char *",
			fmt.Sprintf("0x%x", 8*i)})
	}
	if len(instances) > 0 && instances[0].PDI != nil {
		files["array.pdi"] = instances[0].PDI
	}
	for i, inst := range instances {
		file := fmt.Sprintf("stream_%d.bin", i)
		if files[file] = inst.Code; inst.Code == nil {
			files[file] = inst.Stream.Bytes()
		}
		k.Instances = append(k.Instances, instance{inst.Name, file})
	}
	config, err := json.Marshal(map[string][]kernel{"xrt-kernels": {k}})
	if err != nil {
		tb.Fatal(err)
	}
	files["config.json"] = config
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			tb.Fatal(err)
		}
	}
	return assemble(tb, dir, "-t", "aie2_config", "-j", "config.json")
}

// ModuleELF returns an ELF with only instructions, for xrt.HWContext.ModuleKernel.
func ModuleELF(tb testing.TB, stream []byte) []byte {
	tb.Helper()
	dir := tb.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "stream.bin"), stream, 0o666); err != nil {
		tb.Fatal(err)
	}
	return assemble(tb, dir, "-t", "aie2txn", "-c", "stream.bin")
}

func assemble(tb testing.TB, dir string, args ...string) []byte {
	tb.Helper()
	root := os.Getenv("NPUKIT_XRT_ROOT")
	if root == "" {
		tb.Skip("needs aiebu-asm: run by make test-xrt")
	}
	lib := filepath.Join(root, "usr", "lib", "x86_64-linux-gnu")
	cmd := exec.Command(filepath.Join(lib, "ld-linux-x86-64.so.2"), append([]string{"--library-path", lib,
		filepath.Join(root, "usr", "bin", "aiebu-asm"), "-o", "out.elf"}, args...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("aiebu-asm: %v\n%s", err, out)
	}
	elf, err := os.ReadFile(filepath.Join(dir, "out.elf"))
	if err != nil {
		tb.Fatal(err)
	}
	return elf
}
