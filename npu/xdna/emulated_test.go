package xdna

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/xrt/xrttest"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(compilerMode); mode != "" && len(os.Args) > 1 && os.Args[1] == "compile" {
		if err := playCompiler(mode); err != nil {
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

// opener makes a device that has artefacts for the programs of each group, one binary for each.
type opener func(t *testing.T, groups map[string][]*npu.Program, o Options) *Device

// openers are the ways in which a device is tested: over a driver played in Go, and over the unmodified XRT on the emulated NPU, where that
// is.
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

// emulation reports whether there is an emulated NPU.
func emulation() bool { return os.Getenv("NPUEMU_ROOT") != "" }

// modelOpeners are those that whole models are tested with: where the emulated NPU is, it alone, because every other run of the tests has had
// the fake.
func modelOpeners() map[string]opener {
	all := openers()
	if emulation() {
		delete(all, "fake")
	}
	return all
}

// emulated opens the emulated NPU. The artefacts are ELFs as AMD's assembler makes them, whose descriptors reach every argument.
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
