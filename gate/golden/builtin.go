package golden

import (
	_ "embed"
	"fmt"
	"strings"
)

// builtInPrefix begins the paths of golden files that this package carries, in the place of files
// on the disk: [Read] takes them.
const builtInPrefix = "builtin:"

// builtIn is a golden file in this package. It is for the checkpoint of one SHA-256, over the
// names, types, shapes and bytes of all tensors in their order.
type builtIn struct {
	name    string
	weights string
	data    []byte
}

// smolLM2 is a copy of testdata/smollm2-135m/golden.json, so that an installed command has it.
//
//go:embed reference/smollm2-135m-instruct-q4_1.json
var smolLM2 []byte

func builtIns() []builtIn {
	return []builtIn{{
		name:    "smollm2-135m-instruct-q4_1",
		weights: "1e5b27e00eb7f6771a9e047d695f88174567a5840648a826eda0423e914e4ff6",
		data:    smolLM2,
	}}
}

// BuiltIn returns the path of the golden file for a checkpoint whose tensors have this SHA-256, or
// "" if the package carries none.
func BuiltIn(weights string) string {
	for _, b := range builtIns() {
		if b.weights == weights {
			return builtInPrefix + b.name
		}
	}
	return ""
}

// IsBuiltIn reports whether a path names a golden file of this package.
func IsBuiltIn(path string) bool { return strings.HasPrefix(path, builtInPrefix) }

func builtInData(path string) ([]byte, error) {
	var names []string
	for _, b := range builtIns() {
		if builtInPrefix+b.name == path {
			return b.data, nil
		}
		names = append(names, builtInPrefix+b.name)
	}
	return nil, fmt.Errorf("there is no %s: there is %s", path, strings.Join(names, ", "))
}
