package checkpoint

import (
	"unsafe"

	"github.com/npukit/npukit/npu/dtype"
)

// arrange copies a tensor out of the file's mapping, with its rows in Hugging Face's order and
// aligned for its type. The caller holds c.mu.
//
// RoPE rotates pairs of elements of a head, and there are two conventions. GGUF files of the llama
// architecture pair neighbors, 2i and 2i+1; Hugging Face, and GGUF files of other architectures,
// pair i and i+headDim/2. The q and k projections of llama files therefore have the output rows of
// each head interleaved. Undoing that moves whole rows, so it is exact for every type, quantized
// ones included:
//
//	row i            of a head  <- row 2i    in the file
//	row i+headDim/2  of a head  <- row 2i+1
func (c *Checkpoint) arrange(e *entry) error {
	src := e.stored.data
	if e.Data == nil {
		dst, err := allocate(len(src))
		if err != nil {
			return err
		}
		c.maps = append(c.maps, dst)
		e.Data = dst
	}
	e.filled = true
	if !c.read {
		defer release(src)
	}
	if e.heads == 0 {
		copy(e.Data, src)
		return nil
	}
	rows := e.Shape[0]
	size, headDim := len(src)/rows, rows/e.heads
	for r := range rows {
		head, i := r/headDim, r%headDim
		from := 2 * i
		if half := headDim / 2; i >= half {
			from = 2*(i-half) + 1
		}
		copy(e.Data[r*size:][:size], src[(head*headDim+from)*size:])
	}
	return nil
}

// aligned reports whether data is aligned for reading elements of t. Blocks of quantized types need
// even addresses, for their F16 scales.
func aligned(data []byte, t dtype.Type) bool {
	_, size := t.Block()
	if t.Quantized() {
		size = 2
	}
	return uintptr(unsafe.Pointer(unsafe.SliceData(data)))%uintptr(size) == 0
}
