package cpu

import (
	"context"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/npukit/npukit/npu/cpu/internal/kernel"
)

// BF16 matrices are kept in BF12 if the kernels read that: twelve bits per weight, without loss.
// Decode is memory-bound, so it gets faster by a third.
//
// A bfloat16 has a sign, 8 bits of exponent and 7 of mantissa. The weights of a trained layer are
// about normally distributed: below the largest of a row every exponent is about half as frequent as
// the next larger one, so that sixteen adjacent ones cover all but one weight in some ten thousand. A
// row therefore has a base, and a code of four bits is the distance of an exponent above it. A weight
// with another exponent is an escape: it is listed with its position. A matrix that was quantized or
// pruned has many zeros; if they make too many escapes they get code 0 for themselves, which costs
// the kernels an instruction. A matrix that has many escapes even so stays BF16. Kernels restore the
// exact BF16 values in registers, escapes included, so BF12 does not change results.
//
// Rows are stored in blocks in the order in which they are read: 4 rows, whose columns are adjacent,
// or 16 rows, which are adjacent themselves (npk.h). The matrix unit reads 16-row blocks, as do
// kernels with sixteen sums in a vector; the other kernels read 4-row blocks. That exponents of BF16
// weights carry only 2.6 bits of information is from Zhang et al., 70% Size, 100% Accuracy: Lossless
// LLM Compression for Efficient GPU Inference via Dynamic-Length Float (DFloat11), arXiv 2504.11651.
// They use a Huffman code, which takes a bit less memory and the many threads of a GPU to read.

const (
	bf12Escapes = 1024 // a matrix with more than one escape in so many weights stays BF16
	bf12Few     = 64   // escapes that a matrix of any size may have
)

// bf12Weight is a matrix of BF16 weights in BF12, with the memory it owns.
type bf12Weight struct {
	kernel.BF12
	mem  memory // the head, the codes, and the headers of 4-row blocks
	list memory // the escapes
}

// newBF12 allocates a matrix without its escapes.
func newBF12(from *weightStore, code int32, rows, cols int) (*bf12Weight, error) {
	w := &bf12Weight{BF12: kernel.BF12{Code: code, Rows: int64(rows), Cols: int64(cols)}}
	w.Group = kernel.Block4Rows
	if code == kernel.BF12x16 {
		w.Group = kernel.Block16Rows
	}
	codes, heads := w.Blocks()*w.BlockBytes(), 0
	if code == kernel.BF12x4 {
		heads = (w.Blocks() + 1) * (kernel.Block4Bases + kernel.Block4Rows)
	}
	var err error
	if w.mem, err = from.alloc(alignment + codes + heads); err != nil {
		return nil, err
	}
	w.Head = (*kernel.BF12Head)(w.mem.ptr())
	w.Head.Codes = unsafe.Add(w.mem.ptr(), alignment)
	if heads > 0 {
		w.Head.Heads = unsafe.Add(w.Head.Codes, codes)
	}
	return w, nil
}

func (w *bf12Weight) free() {
	w.mem.free()
	w.list.free()
}

// toBF12 compresses a matrix of BF16, in parallel. It returns nil if there are too many escapes
// with and without a code for zeros.
func toBF12(ctx context.Context, threads int, from *weightStore, e bf12Engine, data []byte,
	rows, cols int) (w *bf12Weight, err error) {
	for zeros := range int64(2) {
		if w, err = tryBF12(ctx, threads, from, e, data, rows, cols, zeros); w != nil || err != nil {
			break
		}
	}
	return w, err
}

func tryBF12(ctx context.Context, threads int, from *weightStore, e bf12Engine, data []byte,
	rows, cols int, zeros int64) (*bf12Weight, error) {
	w, err := newBF12(from, e.BF12Code(), rows, cols)
	if err != nil {
		return nil, err
	}
	w.Head.Zeros = zeros
	step := max(1, stretch/(w.Group*cols))
	found := make([][]uint32, (w.Blocks()+step-1)/step)
	most := int64(rows*cols/bf12Escapes + bf12Few)
	var escapes atomic.Int64
	err = inParallel(ctx, threads, w.Blocks(), step, func(first, end int) error {
		if escapes.Load() > most {
			return nil
		}
		list, ok := e.ToBF12(&w.BF12, data, first, end)
		found[first/step] = list
		if escapes.Add(int64(len(list))); !ok {
			escapes.Add(most + 1)
		}
		return nil
	})
	if err == nil && escapes.Load() <= most {
		w.join(found, step)
		err = w.keep(from, found)
	}
	if err != nil || escapes.Load() > most {
		w.free()
		return nil, err
	}
	return w, nil
}

// join makes the headers index one list of escapes instead of that of their step.
func (w *bf12Weight) join(found [][]uint32, step int) {
	total := 0
	for i, list := range found {
		for q := i * step; q < min((i+1)*step, w.Blocks()); q++ {
			*w.FirstEscape(q) += uint32(total)
		}
		total += len(list)
	}
	if w.Code == kernel.BF12x4 {
		*w.FirstEscape(w.Blocks()) = uint32(total)
	}
}

// keep copies the escapes out of the Go heap.
func (w *bf12Weight) keep(from *weightStore, found [][]uint32) (err error) {
	list := slices.Concat(found...)
	if w.list, err = from.alloc(4 * len(list)); err != nil {
		return err
	}
	w.Head.Escapes = w.list.ptr()
	copy(kernel.Words(w.list.m), list)
	return nil
}
