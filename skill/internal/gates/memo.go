package gates

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/npukit/npukit/oracle"
)

// Memo is the oracle with a cache of its logits. The gates ask for the logits of the same ids in
// every phase and for every change. The cache is of one process: an evaluator starts with none.
type Memo struct {
	ref  *oracle.Model
	rows map[string][]float32 // by the ids up to the position
	size int                  // bytes of rows
}

// rememberMost bounds the cache: 850 positions of a vocabulary of 152,000. The gates of a
// deployment ask for about 300.
const rememberMost = 512 << 20

// Score scores ids as [oracle.State.Score] does. If a row is not in the cache, it computes all
// rows.
func (r *Memo) Score(ctx context.Context, ids []int32, emit func(pos int, logits []float32) error) error {
	var key []byte
	var rows [][]float32
	keys := make([]string, len(ids))
	for pos, id := range ids {
		key = binary.LittleEndian.AppendUint32(key, uint32(id))
		keys[pos] = string(key)
		if row, ok := r.rows[keys[pos]]; ok && len(rows) == pos {
			rows = append(rows, row)
		}
	}
	if len(rows) < len(ids) {
		return r.ref.NewState().Score(ctx, ids, func(pos int, logits []float32) error {
			r.keep(keys[pos], logits)
			return emit(pos, logits)
		})
	}
	for pos, row := range rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := emit(pos, slices.Clone(row)); err != nil { // emit may change the row
			return err
		}
	}
	return nil
}

func (r *Memo) keep(key string, row []float32) {
	if _, ok := r.rows[key]; ok {
		return
	}
	if r.size += 4 * len(row); r.rows == nil || r.size > rememberMost {
		r.rows, r.size = map[string][]float32{}, 4*len(row)
	}
	r.rows[key] = slices.Clone(row)
}
