package xdna2

import (
	"cmp"
	"math"
	"slices"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// find returns the rows that measured exactly this op under exactly this mapping (variant, tile,
// herd and layout), including failed and corrupt ones: failures matter most to a planner. A
// deployment's own rows come first.
func (r *Registry) find(o op.Op, out dtype.Type, m npu.Mapping, size op.Size) ([]Row, error) {
	k, shape, err := ShapeOf(o, size)
	if err != nil {
		return nil, err
	}
	var found []Row
	for _, row := range slices.Backward(r.rows) {
		if row.Kernel == k && row.Program == "" && row.Out == out && row.Shape == shape && sameMapping(row.Mapping, m) {
			found = append(found, row)
		}
	}
	slices.SortStableFunc(found, func(a, b Row) int { return cmp.Compare(recordRank(a), recordRank(b)) })
	return found, nil
}

// recordRank orders a deployment's own measurements before registry rows and those before the rest.
func recordRank(r Row) int {
	switch r.Record {
	case Own:
		return 0
	case Published:
		return 1
	}
	return 2
}

func sameMapping(a, b npu.Mapping) bool {
	return a.Variant == b.Variant && a.Layout == b.Layout && slices.Equal(a.Tile, b.Tile) &&
		slices.Equal(a.Herd, b.Herd)
}

// Candidates returns the rows of the op's kernel that run and have a time, nearest shape first and
// fastest first within a shape. A row's mapping may not fit another shape, so a planner uses the
// first one that passes the rules. Rows measured inside a program are left out because their times
// are not comparable.
func (r *Registry) Candidates(o op.Op, out dtype.Type, size op.Size) ([]Row, error) {
	k, shape, err := ShapeOf(o, size)
	if err != nil {
		return nil, err
	}
	type candidate struct {
		Row
		distance float64
	}
	var list []candidate
	for _, row := range r.rows {
		if row.Kernel != k || row.Program != "" || row.Out != out || !row.Standalone() {
			continue
		}
		list = append(list, candidate{row, distance(k, shape, row.Shape)})
	}
	slices.SortStableFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.Latency, b.Latency),
			cmp.Compare(a.ID, b.ID))
	})
	rows := make([]Row, len(list))
	for i, c := range list {
		rows[i] = c.Row
	}
	return rows, nil
}

// distance is the sum of |log2 ratio| over the dimensions, plus 1 if only one shape is causal or a
// bias.
func distance(k Kernel, a, b Shape) float64 {
	sum := 0.0
	if a.Causal != b.Causal || a.Broadcast != b.Broadcast {
		sum++
	}
	x, y := a.dims(k), b.dims(k)
	for i := range x {
		sum += math.Abs(math.Log2(float64(x[i]) / float64(y[i])))
	}
	return sum
}
