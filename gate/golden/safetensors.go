package golden

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/nlpodyssey/safetensors"

	"github.com/npukit/npukit/gate/internal/stats"
	"github.com/npukit/npukit/npu/dtype"
)

// maxHeader bounds the header: three arrays and one per layer take some kilobytes.
const maxHeader = 1 << 20

func parseSafetensors(data []byte) (*File, error) {
	if len(data) < 8 {
		return nil, fmt.Errorf("%d bytes are neither a safetensors file nor JSON", len(data))
	}
	if n := binary.LittleEndian.Uint64(data); n > maxHeader || n > uint64(len(data)-8) {
		return nil, fmt.Errorf("the header would have %d bytes: truncated, or neither a safetensors "+
			"file nor JSON", n)
	}
	_, meta, err := safetensors.ReadMetadata(data)
	if err != nil {
		return nil, fmt.Errorf("not a safetensors file: %w", err)
	}
	file, err := safetensors.Deserialize(data)
	if err != nil {
		return nil, fmt.Errorf("not a safetensors file: %w", err)
	}
	r := reader{file}
	s := Sequence{Name: "input_ids"}
	if s.IDs, err = r.ids("input_ids", true); err != nil {
		return nil, err
	}
	if s.Greedy, err = r.ids("greedy", false); err != nil {
		return nil, err
	}
	if s.Logits, err = r.rows("logits", len(s.IDs)); err != nil {
		return nil, err
	}
	for _, name := range file.Names() {
		at, ok := strings.CutPrefix(name, "hidden.")
		if !ok {
			continue
		}
		tap, err := tapOf(at)
		if err != nil {
			return nil, err
		}
		if s.Hidden == nil {
			s.Hidden = map[string][]float32{}
		}
		if s.Hidden[tap], err = r.rows(name, len(s.IDs)); err != nil {
			return nil, err
		}
	}
	s.NLL = s.likelihoods()
	return &File{Source: meta.Metadata()["source"], Sequences: []Sequence{s}}, nil
}

// tapOf returns the oracle's tap name for a place along the residual stream.
func tapOf(at string) (string, error) {
	switch at {
	case "embed":
		return "embed.embed", nil
	case "norm":
		return "head.norm", nil
	}
	layer, err := strconv.ParseUint(at, 10, 16)
	if err != nil || strconv.FormatUint(layer, 10) != at {
		return "", fmt.Errorf("hidden.%s is unknown: want hidden.embed, hidden.0, hidden.1, ... or "+
			"hidden.norm", at)
	}
	return fmt.Sprintf("layer.%d.ffn.residual", layer), nil
}

type reader struct{ safetensors.SafeTensors }

func (r reader) ids(name string, must bool) ([]int32, error) {
	v, ok := r.Tensor(name)
	switch {
	case !ok && must:
		return nil, fmt.Errorf("no %s: a golden file has input_ids, logits and greedy (see "+
			"scripts/golden.py)", name)
	case !ok:
		return nil, nil
	case len(v.Shape()) != 1 || v.DType().String() != "I64":
		return nil, fmt.Errorf("%s is %v of %v, want one row of I64", name, v.Shape(), v.DType())
	}
	list := make([]int32, 0, len(v.Data())/8)
	for i, id := range dtype.Int64s(v.Data()) {
		if id < 0 || id >= maxID {
			return nil, fmt.Errorf("%s has %d at %d, which is not an id", name, id, i)
		}
		list = append(list, int32(id))
	}
	return list, nil
}

// rows reads floats [rows, any]; nil if there is no such array.
func (r reader) rows(name string, rows int) ([]float32, error) {
	v, ok := r.Tensor(name)
	if !ok {
		return nil, nil
	}
	shape := v.Shape()
	if len(shape) != 2 || shape[0] != uint64(rows) || shape[1] == 0 || shape[1] > maxID {
		return nil, fmt.Errorf("%s is %v, want one row for each of the %d input_ids", name, shape, rows)
	}
	values := make([]float32, rows*int(shape[1]))
	data, kind := v.Data(), v.DType().String()
	if kind == "F64" {
		if len(data) != 8*len(values) {
			return nil, fmt.Errorf("%s is %v of F64 in %d bytes", name, shape, len(data))
		}
		for i := range values {
			values[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:])))
		}
		return values, nil
	}
	t, err := dtype.Parse(kind)
	if err != nil || t != dtype.F32 && t != dtype.F16 && t != dtype.BF16 {
		return nil, fmt.Errorf("%s is of type %s, want F32, F64, F16 or BF16", name, kind)
	}
	if err := dtype.Dequantize(values, t, data); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return values, nil
}

// likelihoods returns those of the ids under the stored logits.
func (s *Sequence) likelihoods() []float64 {
	vocab := s.Vocab()
	if vocab == 0 || len(s.IDs) < 2 {
		return nil
	}
	list := make([]float64, len(s.IDs)-1)
	for pos := range list {
		row, id := s.Logits[pos*vocab:][:vocab], int(s.IDs[pos+1])
		if id >= vocab {
			return nil // check reports the id
		}
		list[pos] = max(0, stats.LogSumExp(row)-float64(row[id]))
	}
	return list
}
