package published

import (
	"path/filepath"
	"reflect"
	"testing"

	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model/checkpoint"
)

// The configurations are those of the published config.json files.
func TestConfigurationsArePublished(t *testing.T) {
	dir := testenv.Shared(t, "configs")
	for _, m := range Models() {
		files, err := filepath.Glob(filepath.Join(dir, m.Name+"*.config.json"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: no config.json (%v)", m.Name, err)
			continue
		}
		for _, file := range files {
			got, err := checkpoint.ReadConfig(file)
			if err != nil {
				t.Error(err)
				continue
			}
			// Instruct and base variants differ in their stop tokens, which no program sees.
			a, b := *got, m.Config
			a.Name, a.BOS, a.EOS, a.DType = b.Name, b.BOS, b.EOS, b.DType
			if !reflect.DeepEqual(a, b) {
				t.Errorf("%s: published\n  %+v, here\n  %+v", file, a, b)
			}
		}
	}
}

// Every model is in the tables that tests compare predictions with.
func TestModelsAreInTheTables(t *testing.T) {
	for _, name := range []string{"2026-06", "paper"} {
		table, ok := FindBaseline(name)
		if !ok {
			t.Fatalf("no table %s", name)
		}
		for _, m := range Models() {
			if _, ok := table.Row(m.Name); !ok {
				t.Errorf("table %s has no %s", name, m.Name)
			}
			if found, ok := Find(m.Folder); !ok || found.Name != m.Name {
				t.Errorf("%s is not found by its folder", m.Name)
			}
		}
	}
}
