//go:build xrt && linux && cgo

package xrttest

import (
	"os"
	"strings"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func TestScript(t *testing.T) {
	emu := Open(t)
	for script, want := range map[string]string{
		"":                                  "",
		"# nothing\n\n ; ;":                 "",
		"run 1 timeout":                     "",
		"run * delay 5; open 2 EACCES":      "",
		"run 3 error # the third\n":         "",
		"limit contexts 2\nlimit heap 0":    "",
		"run":                               "number",
		"run 0 error":                       "number",
		"run x error":                       "number",
		"run -1 error":                      "number",
		"run 1":                             "action is missing",
		"run 1 explode":                     "the action of run",
		"run 1 delay":                       "followed by a number",
		"run 1 delay x":                     "followed by a number",
		"run 1 timeout 5":                   "something after",
		"open 1 timeout":                    "errno",
		"open 1 EWHAT":                      "errno",
		"close 1 EIO":                       "an event is",
		"limit":                             "a limit is",
		"limit clocks 1":                    "a limit is",
		"limit contexts many":               "a limit is",
		"a b c d e f g":                     "too many words",
		strings.Repeat("run 1 error;", 257): "too many rules",
	} {
		err := emu.Script(script)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.40q: %v, want %q", script, err, want)
		}
	}
}

func TestRegister(t *testing.T) {
	emu := Open(t)
	emu.Register(NewStream(1).Bytes(), nil)
	for name, bad := range map[string][]byte{"nothing": nil, "no header": make([]byte, 12),
		"zeros": make([]byte, 64), "cut off": NewStream(1).Transfer(0, 0, 4).Bytes()[:60]} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: accepted", name)
				}
			}()
			emu.Register(bad, nil)
		}()
	}
}
