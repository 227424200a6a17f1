package xdna

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/npukit/npukit/internal/xrttest"
	"github.com/npukit/npukit/npu"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(compilerMode); mode != "" && len(os.Args) > 1 && os.Args[1] == "compile" {
		if err := actAsCompiler(mode); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if file := os.Getenv(compilerParent); file != "" {
		if err := compileForever(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	os.Exit(xrttest.Main(m))
}

// opener returns a device with one binary per group of programs.
type opener func(t *testing.T, groups map[string][]*npu.Program, o Options) *Device

// openers returns the devices under test: over the fake driver, and over the unmodified XRT on the
// emulated NPU if it is available.
func openers() map[string]opener {
	return map[string]opener{
		"fake": func(t *testing.T, groups map[string][]*npu.Program, o Options) *Device {
			return (&fake{}).open(t, groups, o)
		},
		"xrt": func(t *testing.T, groups map[string][]*npu.Program, o Options) *Device {
			d, _ := emulated(t, groups, o)
			return d
		},
	}
}

// emulation reports whether the emulated NPU is available.
func emulation() bool { return os.Getenv("NPUEMU_ROOT") != "" }

// modelOpeners returns the devices for tests with whole models: only the emulated NPU if it is
// available, because other test runs use the fake.
func modelOpeners() map[string]opener {
	all := openers()
	if emulation() {
		delete(all, "fake")
	}
	return all
}

// emulated opens the emulated NPU. The artefacts are ELFs in the format of AMD's assembler, with
// descriptors for every argument.
func emulated(t *testing.T, groups map[string][]*npu.Program, o Options) (*Device, *xrttest.Emulator) {
	t.Helper()
	emu := xrttest.Open(t)
	array := newArray(t)
	dir := t.TempDir()
	number := uint32(0)
	writeArtefacts(t, dir, groups, func(_ string, programs []*npu.Program) []byte {
		var instances []xrttest.Instance
		args := 0
		for _, p := range programs {
			array.learn(t, p)
			number++
			s := xrttest.NewELFStream(number)
			for i, a := range p.Args {
				s.Transfer(i, 0, uint32(argBytes(a)))
			}
			emu.Register(s.Bytes(), func(mem [][]byte) error { return array.compute(p.Name, mem) })
			instances = append(instances, xrttest.Instance{Name: instanceOf(p), Stream: s})
			args = max(args, len(p.Args))
		}
		return xrttest.FullELF(t, args, instances...)
	})
	o.Artefacts = dir
	if o.Lock == "" {
		o.Lock = filepath.Join(dir, "npu.lock")
	}
	d, err := Open(context.Background(), &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeIt(t, d) })
	return d, emu
}
