package cpu

import (
	"fmt"

	"github.com/npukit/npukit/npu/cpu/internal/kernel"
	"github.com/npukit/npukit/npu/dtype"
)

// groupedWeight is a matrix of quantized weights in groups, with the memory it owns.
type groupedWeight struct {
	kernel.Grouped
	mem memory
}

// groupedTypes returns the block types that the device repacks into groups.
func groupedTypes() []dtype.Type {
	var list []dtype.Type
	for _, f := range kernel.Forms {
		list = append(list, f.Type)
	}
	return list
}

// newGrouped allocates a matrix of a block type. Rows must be whole blocks.
func newGrouped(from *weightStore, t dtype.Type, rows, cols int) (*groupedWeight, error) {
	code, ok := kernel.GroupedCode(t)
	elems, _ := t.Block()
	if !ok || rows < 1 || cols < 1 || cols%elems != 0 {
		return nil, fmt.Errorf("cannot group a %s matrix of %d rows of %d elements: rows must be whole blocks", t, rows,
			cols)
	}
	w := &groupedWeight{Grouped: kernel.Grouped{Code: code, Rows: int64(rows), Cols: int64(cols)}}
	each := int(kernel.FormOf(code).GroupBytes(int64(cols)))
	if w.Groups() > maxAlloc/each {
		return nil, fmt.Errorf("%d rows of %d elements are out of range", rows, cols)
	}
	var err error
	if w.mem, err = from.alloc(w.Groups() * each); err != nil {
		return nil, err
	}
	w.Data = w.mem.m
	return w, nil
}
