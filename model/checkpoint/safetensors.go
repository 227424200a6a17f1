package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"

	"github.com/nlpodyssey/safetensors"

	"github.com/npukit/npukit/npu/dtype"
)

// stored is a tensor as it lies in a file.
type stored struct {
	name     string     // its Hugging Face name
	inFile   string     // its name in the file where that is another, else ""
	file     string     // path
	typ      dtype.Type // Invalid: a type this module has no name for
	typeName string     // the file's name for the type
	shape    []int      // row-major, outermost first
	data     []byte     // in the mapping
}

func (s *stored) errorf(format string, args ...any) error {
	return &TensorError{File: s.file, Tensor: s.name, InFile: s.inFile, Problem: fmt.Sprintf(format, args...)}
}

// maxHeader bounds a safetensors header. A tensor takes some 120 bytes of it and a shard has at most a few thousand; the format's own
// limit of 100 MB would let a hostile file take gigabytes of memory when decoded.
const maxHeader = 8 << 20

// readSafetensors lists the tensors of a mapped file without reading their data.
//
// The library checks that the header lies in the file, that types, shapes and sizes agree, and that the tensors follow one another
// without holes or overlaps up to the end of the file. What it does not see is checked here: the header's size before it is decoded,
// duplicate names (JSON decoding keeps the last), and shapes that an int cannot hold.
func readSafetensors(file string, buf []byte) ([]stored, error) {
	if len(buf) < 8 {
		return nil, fileErrorf(file, "has %d bytes, too few for a safetensors header: was the download interrupted?", len(buf))
	}
	n := binary.LittleEndian.Uint64(buf)
	switch {
	case n > uint64(len(buf)-8):
		return nil, fileErrorf(file, "says that its header has %d bytes, but only %d follow: is it truncated, or no safetensors file?", n, len(buf)-8)
	case n > maxHeader:
		return nil, fileErrorf(file, "says that its header has %d bytes, more than the %d that any model needs", n, maxHeader)
	}
	if name, err := duplicateKey(buf[8 : 8+n]); err != nil {
		return nil, &FileError{File: file, Problem: "the header is not valid JSON", Err: err}
	} else if name != "" {
		return nil, &TensorError{File: file, Tensor: name, Problem: "is in the header twice"}
	}
	st, err := safetensors.Deserialize(buf)
	if err != nil {
		return nil, &FileError{File: file, Problem: "is damaged or truncated", Err: err}
	}
	views := st.Tensors()
	all := make([]stored, 0, len(views))
	for _, v := range views {
		s := stored{name: v.Name, file: file, typeName: v.TensorView.DType().String(), data: v.TensorView.Data()}
		s.typ, _ = dtype.Parse(s.typeName) // unsigned types have no name here; whoever wants the tensor refuses them
		for _, d := range v.TensorView.Shape() {
			if d > math.MaxInt {
				return nil, s.errorf("has a dimension of %d", d)
			}
			s.shape = append(s.shape, int(d))
		}
		all = append(all, s)
	}
	return all, nil
}

// duplicateKey gives a key that occurs twice in a JSON object, or in one of the objects directly inside it; "" if none does.
func duplicateKey(text []byte) (string, error) {
	const maxDepth = 8 // headers and indexes are objects in an object
	type level struct {
		seen map[string]bool // nil in arrays, and too deep to matter
		key  bool            // in an object: the next token is a key
	}
	var open []level
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	for {
		t, err := d.Token()
		if err != nil {
			return "", err
		}
		delim, isDelim := t.(json.Delim)
		if isDelim && (delim == '}' || delim == ']') {
			if open = open[:len(open)-1]; len(open) == 0 {
				return "", nil
			}
			continue
		}
		if len(open) > 0 {
			top := &open[len(open)-1]
			if top.key && top.seen != nil {
				key := t.(string) // the decoder lets nothing else stand there
				if top.seen[key] {
					return key, nil
				}
				top.seen[key], top.key = true, false
				continue
			}
			top.key = true
		}
		switch {
		case isDelim && len(open) == maxDepth:
			return "", fmt.Errorf("it is nested more than %d deep", maxDepth)
		case isDelim && delim == '{' && len(open) < 2:
			open = append(open, level{seen: map[string]bool{}, key: true})
		case isDelim:
			open = append(open, level{})
		case len(open) == 0:
			return "", fmt.Errorf("it is %v, not an object", t)
		}
	}
}
