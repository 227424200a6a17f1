package cpu

import (
	"context"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/npukit/npukit/npu"
)

// BF16 matrices are kept in BF12 where the kernels read that: twelve bits a weight, and not one of them lost. Decoding takes as long as it takes to read the
// weights, so it gets faster by a third.
//
// A bfloat16 is a sign, 8 bits of exponent and 7 of mantissa. Weights of a trained layer are spread like a bell, so that below the largest of a row every
// exponent is about half as frequent as the next larger one: sixteen in succession are all but one weight in some ten thousand. So a row has a base, and a code of
// four bits stands for the exponent so far above it. What has another exponent is an escape: it is listed with its place. A matrix that was quantised or pruned has many
// zeros, and where they make too many escapes they get the code 0 for themselves, which costs the kernels an instruction. One with many escapes even so stays BF16.
// Kernels put the BF16 together again in registers, escapes included, and so compute what they would from the file's own.
//
// Rows lie in groups in the order in which they are read: four make a quad, whose columns are side by side, or sixteen a strip, whose rows are side by side (npk.h). The
// matrix unit takes strips, and so do sixteen sums in a vector; the other kernels read quads. That exponents of BF16 weights have but
// 2.6 bits of information is from Zhang et al., 70% Size, 100% Accuracy: Lossless LLM Compression for Efficient GPU Inference via Dynamic-Length Float (DFloat11),
// arXiv 2504.11651. They use a Huffman code, a bit less of memory, and the many threads of a GPU to read it.

const (
	quadRows     = 4
	quadColumns  = npu.CompressedColumns // of a unit
	stripRows    = 16
	stripColumns = 8
	bf12Unit     = 192  // bytes
	bf12Escapes  = 1024 // a matrix with more than one in so many weights stays BF16
	bf12Local    = 64   // the same for some rows of it
	bf12Few      = 64   // which matrices of any size may have
	quadBases    = 4    // where a quad's head has its bases, behind the number of its first escape
	stripBases   = 8    // and a strip's, behind their count, too
)

// bf12Weight is a matrix of BF16 weights in BF12, outside the Go heap.
type bf12Weight struct {
	code       int32 // typeBF12 or typeStrips
	group      int   // rows of a quad or a strip
	rows, cols int64
	head       *bf12Head
	mem        memory // the head, the codes and the heads of quads, which strips have before their codes
	list       memory // the escapes
}

// bf12Head is npk_bf12: what a command points to.
type bf12Head struct {
	codes, heads, escapes unsafe.Pointer
	zeros                 int64
}

// bf12Engine is an engine whose kernels read BF12.
type bf12Engine interface {
	// readsBF12 is the type of BF12 that the kernels read.
	readsBF12() int32
	// useBF12 makes the engine ready for weights in BF12, before there are any. It reports whether kernels are faster by them; if not, nothing changes.
	useBF12() bool
	// toBF12 fills quads or strips first to last-1 of a weight from its rows as they lie in a file. It gives their escapes, to which the numbers in the heads refer, and
	// false where those are too many. Calls may overlap.
	toBF12(w *bf12Weight, data []byte, first, last int) ([]uint32, bool)
}

// count is the number of quads or strips.
func (w *bf12Weight) count() int { return (int(w.rows) + w.group - 1) / w.group }

// groupBytes is the size of a quad's codes, or of a strip.
func (w *bf12Weight) groupBytes() int {
	return w.stripHead() + int(w.cols)*w.group/(quadRows*quadColumns)*bf12Unit
}

// stripHead is the size of a strip's head, 0 of a quad's, which lies elsewhere.
func (w *bf12Weight) stripHead() int {
	if w.code != typeStrips {
		return 0
	}
	return alignment * (1 + int(w.cols)/4096)
}

// escapes is the first escape of a quad or strip.
func (w *bf12Weight) escapes(i int) *uint32 {
	if w.code == typeStrips {
		return (*uint32)(unsafe.Add(w.head.codes, i*w.groupBytes()))
	}
	return (*uint32)(unsafe.Add(w.head.heads, i*(quadBases+quadRows)))
}

// newBF12 makes room for a matrix, but for its escapes.
func newBF12(from *weightStore, code int32, rows, cols int) (*bf12Weight, error) {
	w := &bf12Weight{code: code, group: quadRows, rows: int64(rows), cols: int64(cols)}
	if code == typeStrips {
		w.group = stripRows
	}
	codes, heads := w.count()*w.groupBytes(), 0
	if code == typeBF12 {
		heads = (w.count() + 1) * (quadBases + quadRows)
	}
	var err error
	if w.mem, err = from.alloc(alignment + codes + heads); err != nil {
		return nil, err
	}
	w.head = (*bf12Head)(w.mem.ptr())
	w.head.codes = unsafe.Add(w.mem.ptr(), alignment)
	if heads > 0 {
		w.head.heads = unsafe.Add(w.head.codes, codes)
	}
	return w, nil
}

func (w *bf12Weight) free() {
	w.mem.free()
	w.list.free()
}

// toBF12 makes BF12 of a matrix of BF16, in parallel; nil when it has too many escapes with and without a code for zeros.
func toBF12(ctx context.Context, threads int, from *weightStore, e bf12Engine, data []byte, rows, cols int) (w *bf12Weight, err error) {
	for zeros := range int64(2) {
		if w, err = tryBF12(ctx, threads, from, e, data, rows, cols, zeros); w != nil || err != nil {
			break
		}
	}
	return w, err
}

func tryBF12(ctx context.Context, threads int, from *weightStore, e bf12Engine, data []byte, rows, cols int, zeros int64) (*bf12Weight, error) {
	w, err := newBF12(from, e.readsBF12(), rows, cols)
	if err != nil {
		return nil, err
	}
	w.head.zeros = zeros
	step := max(1, stretch/(w.group*cols))
	found := make([][]uint32, (w.count()+step-1)/step)
	most := int64(rows*cols/bf12Escapes + bf12Few)
	var escapes atomic.Int64
	err = inParallel(ctx, threads, w.count(), step, func(first, end int) error {
		if escapes.Load() > most {
			return nil
		}
		list, ok := e.toBF12(w, data, first, end)
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

// join makes the numbers in heads refer to one list of escapes instead of to that of their step.
func (w *bf12Weight) join(found [][]uint32, step int) {
	total := 0
	for i, list := range found {
		for q := i * step; q < min((i+1)*step, w.count()); q++ {
			*w.escapes(q) += uint32(total)
		}
		total += len(list)
	}
	if w.code == typeBF12 {
		*w.escapes(w.count()) = uint32(total)
	}
}

// keep copies the escapes out of the Go heap.
func (w *bf12Weight) keep(from *weightStore, found [][]uint32) (err error) {
	list := slices.Concat(found...)
	if w.list, err = from.alloc(4 * len(list)); err != nil {
		return err
	}
	w.head.escapes = w.list.ptr()
	copy(words(w.list.m), list)
	return nil
}
