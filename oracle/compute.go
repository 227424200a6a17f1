package oracle

import (
	"context"
	"fmt"
	"slices"

	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// Compute runs one op and returns its output.
//
// The inputs are in the order of [op.Op.Operands]: []float32 for numbers of any device type,
// []int32 for ids and indices. It returns an error if a length does not match the op's shapes.
// Inputs are not modified: for KVWrite the result is a copy of the cache with the rows written.
//
// Size resolves the symbols [op.Rows], [op.Picks] and [op.Capacity] and sets the position of the
// first row for KVWrite and cached Attention. The result is FP32 and is not rounded to the device's
// type. For Cast it is x itself; rounding is left to the caller's tolerance.
func Compute(ctx context.Context, o op.Op, size op.Size, in ...any) ([]float32, error) {
	if o == nil {
		return nil, fmt.Errorf("oracle: op is nil")
	}
	dst, err := compute(ctx, o, size, in)
	if err != nil {
		return nil, fmt.Errorf("oracle: %s: %w", o.Kind(), err)
	}
	return dst, nil
}

func compute(ctx context.Context, o op.Op, size op.Size, in []any) ([]float32, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var x [][]float32 // inputs, nil for an index
	var index []int32
	var dst []float32
	for _, operand := range o.Operands() {
		n, err := elements(operand.Shape, size)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", operand.Name, op.ShapeString(operand.Shape), err)
		}
		if operand.Read {
			if len(in) == 0 {
				return nil, fmt.Errorf("operand %s %s is missing", operand.Name, op.ShapeString(operand.Shape))
			}
			values, ids, err := read(operand, in[0], n)
			if err != nil {
				return nil, err
			}
			if ids != nil {
				index = ids
			}
			x = append(x, values)
			in = in[1:]
		}
		switch {
		case operand.Write && operand.Read:
			dst = slices.Clone(x[len(x)-1])
		case operand.Write:
			dst = make([]float32, n)
		}
	}
	if len(in) > 0 {
		return nil, fmt.Errorf("%d operands too many", len(in))
	}
	return dst, dispatch(ctx, o, size, dst, x, index)
}

// dispatch resolves the symbols in the op's shape and calls the function that computes it.
func dispatch(ctx context.Context, o op.Op, size op.Size, dst []float32, x [][]float32, index []int32) error {
	switch o := o.(type) {
	case op.MatMul:
		o.M = size.Resolve(o.M)
		return matMul(ctx, o, dst, x[0], x[1])
	case op.Embed:
		return gather(ctx, dst, index, x[1], o.Width)
	case op.Pick:
		return gather(ctx, dst, index, x[1], o.Width)
	case op.Cast:
		return spans(ctx, len(dst), 1, func(from, to int) { copy(dst[from:to], x[0][from:to]) })
	case op.RMSNorm:
		o.Rows = size.Resolve(o.Rows)
		return rmsNorm(ctx, o, dst, x[0], x[1])
	case op.LayerNorm:
		o.Rows = size.Resolve(o.Rows)
		return layerNorm(ctx, o, dst, x[0], x[1], x[2])
	case op.SiLUMul:
		o.Rows = size.Resolve(o.Rows)
		return siLUMul(ctx, o, dst, x[0], x[1])
	case op.GELU:
		o.Rows = size.Resolve(o.Rows)
		return gelu(ctx, o, dst, x[0])
	case op.Add:
		o.Rows = size.Resolve(o.Rows)
		return add(ctx, o, dst, x[0], x[1])
	case op.RoPE:
		o.Rows = size.Resolve(o.Rows)
		return rope(ctx, o, dst, x[0], x[1])
	case op.KVWrite:
		o.Rows = size.Resolve(o.Rows)
		if err := fits(o.Rows, size); err != nil {
			return err
		}
		return kvWrite(ctx, o, dst, x[0], size.Pos, size.Capacity)
	case op.Attention:
		o.Rows = size.Resolve(o.Rows)
		if o.Cached {
			if err := fits(o.Rows, size); err != nil {
				return err
			}
		}
		return attention(ctx, o, dst, x[0], x[1], x[2], size.Pos, size.Capacity)
	case op.Permute:
		o.Shape = slices.Clone(o.Shape)
		for i, d := range o.Shape {
			o.Shape[i] = size.Resolve(d)
		}
		return permute(ctx, o, dst, x[0])
	case op.Slice:
		o.Rows = size.Resolve(o.Rows)
		return slice(ctx, o, dst, x[0])
	case op.Concat:
		o.Rows = size.Resolve(o.Rows)
		return concat(ctx, o, dst, x)
	}
	return fmt.Errorf("unsupported op type %T: want one of package op's structs, by value", o)
}

// read checks the type and length of an input. It must have n elements.
func read(operand op.Operand, given any, n int) (values []float32, ids []int32, err error) {
	want, got := "[]float32", 0
	if slices.Contains(operand.Types, dtype.I32) {
		want = "[]int32"
		if ids, _ = given.([]int32); ids != nil {
			got = len(ids)
		}
	} else if values, _ = given.([]float32); values != nil {
		got = len(values)
	}
	switch {
	case values == nil && ids == nil:
		return nil, nil, fmt.Errorf("operand %s is a %T, want %s", operand.Name, given, want)
	case got != n:
		return nil, nil, fmt.Errorf("operand %s has %d elements, want %d: %s", operand.Name, got, n,
			op.ShapeString(operand.Shape))
	}
	return values, ids, nil
}

// maxElements bounds an operand: 8 GiB of FP32, several times the largest matrix of any model.
const maxElements = 1 << 31

// elements returns the number of elements of a shape. It returns an error if size does not resolve
// a symbol to a positive number.
func elements(shape []int, size op.Size) (int, error) {
	n := 1
	for _, d := range shape {
		d = size.Resolve(d)
		if d <= 0 {
			return 0, fmt.Errorf("want a positive number for every symbol, got op.Size %+v", size)
		}
		if n > maxElements/d {
			return 0, fmt.Errorf("more than %d elements", maxElements)
		}
		n *= d
	}
	return n, nil
}

// fits returns an error if the rows are outside the cache.
func fits(rows int, size op.Size) error {
	if size.Pos < 0 || size.Pos > size.Capacity-rows {
		return fmt.Errorf("%d rows at position %d are outside a cache of %d", rows, size.Pos, size.Capacity)
	}
	return nil
}
