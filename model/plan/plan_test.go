package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/readfile"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
)

// tinyModels are the models of testdata/tiny-models that plans are made for.
var tinyModels = []string{"llama-tied-rope-scaled", "llama-untied-sharded", "smollm-mha", "qwen2-bias", "qwen3-qknorm"}

// tinyPlan returns the plan of a tiny model for the CPU, with its configuration and the device.
func tinyPlan(t *testing.T, name string) (*Plan, *checkpoint.Config, npu.Info) {
	t.Helper()
	ck, err := checkpoint.Open(filepath.Join(testenv.Root(), "testdata", "tiny-models", name), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	dev, err := cpu.Open(&cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	p, err := New(ck, dev.Info(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p, ck.Config(), dev.Info()
}

// A plan survives a round trip through a file. Check rejects it for another model or device.
func TestPlanFile(t *testing.T) {
	for i, name := range tinyModels {
		p, config, info := tinyPlan(t, name)
		data, err := json.MarshalIndent(p, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "plan.json")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		back, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back, p) {
			t.Errorf("%s: the plan differs after a round trip", name)
		}
		if len(back.Programs) != 3 {
			t.Errorf("%s: %d programs, want embed, layer and head: equal layers share one", name,
				len(back.Programs))
		}
		_, other, _ := tinyPlan(t, tinyModels[(i+1)%len(tinyModels)])
		if err := back.Check(other, info); err == nil || !strings.Contains(err.Error(), "the plan is for") {
			t.Errorf("%s: Check for another model: %v", name, err)
		}
		back.Device = "xdna"
		if err := back.Check(config, info); err == nil ||
			!strings.Contains(err.Error(), "the plan is for xdna, device cpu") {
			t.Errorf("%s: Check for another device: %v", name, err)
		}

		for from, to := range map[string]string{
			`"version": 2`:       `"version": 1`,
			`"value:x.0"`:        `"value:nowhere"`,
			`"on": "npu"`:        `"on": "moon"`,
			`"program": "layer"`: `"program": "liar"`,
			`"state:k.0"`:        `"value:x.0"`,
			`"activations"`:      `"activation"`,
			`"chunk": 512`:       `"chunk": -1`,
		} {
			bad := bytes.Replace(data, []byte(from), []byte(to), 1)
			if bytes.Equal(bad, data) {
				t.Fatalf("the plan has no %s", from)
			}
			if err := os.WriteFile(path, bad, 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := Read(path); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: Read of a plan with %s: %v, want an error with the file's name", name, to, err)
			}
		}
	}
}

// The error of a plan file with a syntax error has the line. A truncated file is reported as such,
// and an oversized one is not read to its end.
func TestInvalidPlanFile(t *testing.T) {
	p, _, _ := tinyPlan(t, "smollm-mha")
	data, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "plan.json")
	for name, tc := range map[string]struct {
		data []byte
		want string
	}{
		"empty": {nil, "ends after 0 bytes"},
		"cut":   {data[:len(data)/2], "within the JSON object"},
		"no colon": {bytes.Replace(data, []byte("\n \"model\":"), []byte("\n \"model\""), 1),
			"line 3 is not valid JSON"},
		"two plans":        {append(slices.Clone(data), data...), "trailing data after the JSON object"},
		"open rows":        {bytes.Replace(data, []byte("value:rope"), []byte("value:ropf"), 1), "[rows "},
		"larger than any":  {make([]byte, maxBytes+2), "file too large"},
		"no plan but JSON": {[]byte("[]"), "array"},
	} {
		if err := os.WriteFile(path, tc.data, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), path) ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want an error with the file's name and %q", name, err, tc.want)
		}
	}
	for _, path := range []string{t.TempDir(), os.DevNull} {
		if _, err := Read(path); !errors.Is(err, readfile.ErrNotRegular) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want an error with its name", path, err)
		}
	}
}
