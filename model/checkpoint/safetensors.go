package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/nlpodyssey/safetensors"

	"github.com/npukit/npukit/npu/dtype"
)

// stored is a tensor in a file.
type stored struct {
	name     string     // its Hugging Face name
	inFile   string     // its name in the file, if that differs
	file     string     // path
	typ      dtype.Type // Invalid for unsupported types
	typeName string     // the file's name for the type
	shape    []int      // row-major, outermost first
	data     []byte     // in the mapping
}

func (s *stored) errorf(format string, args ...any) error {
	return &Error{File: s.file, Tensor: s.name, InFile: s.inFile, Problem: fmt.Sprintf(format, args...)}
}

// maxHeader bounds a safetensors header. A tensor takes about 120 bytes and a shard has at most a
// few thousand. The format's own limit of 100 MB would let a hostile file take gigabytes of memory
// when decoded.
const maxHeader = 8 << 20

// readSafetensors returns the tensors of a mapped file without reading their data.
//
// The library rejects inconsistent headers, but with little detail and not completely. So the size
// of the header and repeated names are checked here before decoding.
func readSafetensors(file string, buf []byte) ([]stored, error) {
	if len(buf) < 8 {
		return nil, fileErrorf(file, "has %d bytes, too few for a safetensors header: was the download "+
			"interrupted? Fetch it again", len(buf))
	}
	n := binary.LittleEndian.Uint64(buf)
	switch {
	case n > uint64(len(buf)-8):
		return nil, fileErrorf(file, "has a header of %d bytes, but only %d follow: is it truncated, or "+
			"not a safetensors file? Fetch it again", n, len(buf)-8)
	case n > maxHeader:
		return nil, fileErrorf(file, "has a header of %d bytes, at most %d are supported", n,
			maxHeader)
	}
	header, data := buf[8:8+n], buf[8+n:]
	if name, err := duplicateKey(header); err != nil {
		return nil, &Error{File: file, Problem: "the header is not valid JSON", Err: err}
	} else if name != "" {
		return nil, &Error{File: file, Tensor: name, Problem: "is repeated in the header"}
	}
	var m safetensors.Metadata
	if err := json.Unmarshal(header, &m); err != nil {
		return nil, &Error{File: file, Err: err,
			Problem: "the header is damaged, or names a type that is not supported (weights may be F32, F16 or BF16)"}
	}
	if err := checkRanges(file, m.Tensors(), uint64(len(data))); err != nil {
		return nil, err
	}
	st, err := safetensors.Deserialize(buf)
	if err != nil {
		return nil, &Error{File: file, Problem: "is damaged", Err: err}
	}
	all := make([]stored, 0, st.Len())
	for _, v := range st.Tensors() {
		s := stored{name: v.Name, file: file, typeName: v.TensorView.DType().String(), data: v.TensorView.Data()}
		s.typ, _ = dtype.Parse(s.typeName) // unsigned types are Invalid; match rejects them
		for _, d := range v.TensorView.Shape() {
			s.shape = append(s.shape, int(d)) // fits: checkRanges
		}
		all = append(all, s)
	}
	return all, nil
}

// checkRanges returns an error unless the tensors fill the data without gaps or overlaps, and the
// size of each matches its shape.
func checkRanges(file string, tensors map[string]*safetensors.TensorInfo, size uint64) error {
	names := slices.SortedFunc(maps.Keys(tensors), func(a, b string) int {
		x, y := tensors[a].DataOffsets, tensors[b].DataOffsets
		return cmp.Or(cmp.Compare(x[0], y[0]), cmp.Compare(x[1], y[1]), strings.Compare(a, b))
	})
	var end uint64 // of the tensor before
	var before string
	for _, name := range names {
		t := tensors[name]
		no := func(format string, args ...any) error {
			return &Error{File: file, Tensor: name, Problem: fmt.Sprintf(format, args...)}
		}
		from, to := t.DataOffsets[0], t.DataOffsets[1]
		switch {
		case to < from || to > size:
			return no("takes bytes %d to %d of the data, which has only %d: is the file truncated? Fetch it again",
				from, to, size)
		case from < end:
			return no("overlaps %q", before)
		case from > end:
			return no("leaves %d bytes unused before it", from-end)
		}
		bytes := t.DType.Size()
		for _, d := range t.Shape {
			high, low := bits.Mul64(bytes, d)
			if d == 0 || high != 0 || low > size {
				return no("is %v of %v, which its %d bytes cannot hold", t.Shape, t.DType, to-from)
			}
			bytes = low
		}
		if bytes != to-from {
			return no("is %v of %v, but takes %d bytes", t.Shape, t.DType, to-from)
		}
		end, before = to, name
	}
	if end != size {
		return fileErrorf(file, "%d bytes follow the last tensor", size-end)
	}
	return nil
}

// duplicateKey returns a key that occurs twice in a JSON object, or in an object directly inside
// it, or "".
func duplicateKey(text []byte) (string, error) {
	const maxDepth = 8 // headers and indexes are objects in an object
	type level struct {
		seen map[string]bool // nil in arrays and at deeper levels
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
				key := t.(string) // guaranteed by the decoder
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
