package published

import (
	"cmp"
	_ "embed" // the argument lists
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
)

// Program is a published program.
type Program struct {
	Phase    string // "prefill", "decode" or "both"
	Name     string `json:"program"`
	Instance string
	Args     string // see [Args]
}

//go:embed programs.json
var programs []byte

var parsedPrograms = sync.OnceValues(func() (map[string][]Program, error) {
	var file struct{ Models map[string][]Program }
	if err := json.Unmarshal(programs, &file); err != nil {
		return nil, fmt.Errorf("programs.json: %w", err)
	}
	return file.Models, nil
})

// Programs returns the programs of a model in the order of their first dispatch, by the name of its
// folder.
//
// Source: captured from the builders of Xilinx/mlir-air e972f2942.
func Programs(folder string) ([]Program, error) {
	all, err := parsedPrograms()
	if err != nil {
		return nil, err
	}
	list, ok := all[folder]
	if !ok {
		return nil, fmt.Errorf("programs.json: no model %q", folder)
	}
	return list, nil
}

// Args formats the arguments of a program like the published lists: for each its role (D dynamic,
// W static, I intermediate, O output), its type if that is not BF16, and its shape.
func Args(p *npu.Program) string {
	roles := map[npu.Kind]string{npu.In: "D", npu.Const: "W", npu.Scratch: "I", npu.Out: "O", npu.State: "S"}
	var parts []string
	for _, a := range p.Args {
		dims := make([]string, len(a.Shape))
		for i, d := range a.Shape {
			dims[i] = fmt.Sprint(d)
		}
		s := roles[a.Kind] + " "
		if a.Type == dtype.F32 {
			s += "f32 "
		}
		parts = append(parts, s+strings.Join(dims, "x"))
	}
	return strings.Join(parts, "; ")
}

// Differences compares the programs of a phase with the published ones. got are the distinct
// programs that the phase runs on the array, in order.
func Differences(phase string, want []Program, got []*npu.Program) (list []string) {
	for _, w := range want {
		if w.Phase != phase {
			continue
		}
		if len(got) == 0 {
			list = append(list, fmt.Sprintf("%s: program %s is missing", phase, w.Name))
			continue
		}
		p := got[0]
		got = got[1:]
		instance := cmp.Or(p.Instance, p.Name)
		if p.Name != w.Name || instance != w.Instance {
			list = append(list, fmt.Sprintf("%s: program %s (%s), want %s (%s)", phase, p.Name, instance, w.Name,
				w.Instance))
		}
		if a := Args(p); a != w.Args {
			list = append(list, fmt.Sprintf("%s: %s: arguments\n got %s\nwant %s", phase, w.Name, a, w.Args))
		}
	}
	for _, p := range got {
		list = append(list, fmt.Sprintf("%s: program %s is not published", phase, p.Name))
	}
	return list
}
