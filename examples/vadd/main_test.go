package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/xrttest"
)

func TestMain(m *testing.M) { os.Exit(xrttest.Main(m)) }

func TestVadd(t *testing.T) {
	emu := xrttest.Open(t)
	s := xrttest.NewELFStream(1)
	for arg := range 3 {
		s.Transfer(arg, 0, 4*n)
	}
	emu.Register(s.Bytes(), func(args [][]byte) error {
		for i := 0; i < 4*n; i += 4 {
			a, b := binary.LittleEndian.Uint32(args[0][i:]), binary.LittleEndian.Uint32(args[1][i:])
			binary.LittleEndian.PutUint32(args[2][i:], a+b)
		}
		return nil
	})
	path := filepath.Join(t.TempDir(), "vadd.elf")
	if err := os.WriteFile(path, xrttest.FullELF(t, 3, xrttest.Instance{Name: "vadd", Stream: s}), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, path, instance, script, says string
		fails                              bool
	}{
		{"right", path, "main:vadd", "", "1000 runs, 1024 elements right", false},
		{"no such instance", path, "main:vsub", "", "no such kernel", true},
		{"no such file", path + "x", "main:vadd", "", "no such file", true},
		{"no permission", path, "main:vadd", "open 1 EACCES", "add the user to", true},
		{"a run fails", path, "main:vadd", "run 517 error", "in run 16", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := emu.Script(tc.script); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			before := emu.Stats().Commands
			err := vadd(t.Context(), &out, tc.path, tc.instance)
			said := out.String()
			if err != nil {
				said = err.Error()
			}
			if (err != nil) != tc.fails || !strings.Contains(said, tc.says) {
				t.Errorf("%q, want %q", said, tc.says)
			}
			if n := emu.Stats().Commands - before; !tc.fails && n != runs {
				t.Errorf("the device saw %d runs", n)
			}
		})
	}
}
