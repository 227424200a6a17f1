package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"strings"

	"github.com/npukit/npukit/npu/dtype"
)

// DeterminismReport is what [Determinism] found.
type DeterminismReport struct {
	Name      string
	Reasons   []Reason
	Positions int // compared, over all runs
}

// Determinism scores two prompts in turn, a, b, a, b, and wants each to have bitwise the same logits both times. A device that answers from
// data of the run before, be it a buffer that was not synced or keys of the other prompt in the cache, answers differently the second time,
// because what lies there is another prompt's. Take prompts of different lengths, the first longer: then the cache behind the second is not
// empty.
//
// Prompts whose ids differ must also differ in logits, or the device does not look at its input.
func Determinism(ctx context.Context, s Scorer, a, b []int32) (DeterminismReport, error) {
	if err := needScorer("scorer", s); err != nil {
		return DeterminismReport{}, err
	}
	for _, ids := range [][]int32{a, b} {
		if err := needIDs(ids, 1); err != nil {
			return DeterminismReport{}, err
		}
	}
	differ := 0
	for differ < min(len(a), len(b)) && a[differ] == b[differ] {
		differ++
	}
	if differ == min(len(a), len(b)) {
		return DeterminismReport{}, badInput("a, b", "one prompt is a prefix of the other, so equal logits would be right: use other prompts")
	}
	var r DeterminismReport
	seed := maphash.MakeSeed()
	var first [2][]uint64
	for run := range 4 {
		ids := [][]int32{a, b}[run%2]
		prints := make([]uint64, 0, len(ids))
		for logits, err := range positions(ctx, s, ids) {
			if err != nil {
				return r, err
			}
			// 64 bits stand for a row of logits: two that differ look the same once in 2^64.
			prints = append(prints, maphash.Bytes(seed, dtype.AsBytes(logits)))
		}
		if run < 2 {
			first[run] = prints
			continue
		}
		changed, at := 0, -1
		for pos, p := range prints {
			if p != first[run%2][pos] {
				if changed++; at < 0 {
					at = pos
				}
			}
		}
		r.Positions += len(prints)
		if changed > 0 {
			r.Reasons = append(r.Reasons, Reason{Repeats, fmt.Sprintf("prompt %s, scored again after the other one, has other logits at %d of %d positions, "+
				"the first is %d: does something of the run before lie where this one reads?", []string{"a", "b"}[run%2], changed, len(prints), at)})
		}
	}
	same := 0
	for pos := differ; pos < min(len(a), len(b)); pos++ {
		if first[0][pos] == first[1][pos] {
			same++
		}
	}
	if same > 0 {
		r.Reasons = append(r.Reasons, Reason{Distinct, fmt.Sprintf("the two prompts have bitwise equal logits at %d positions "+
			"although their ids differ from %d on: "+
			"the device does not look at its input there", same, differ)})
	}
	return r, nil
}

// OK reports whether the device is deterministic.
func (r DeterminismReport) OK() bool { return len(r.Reasons) == 0 && r.Positions > 0 }

// Err is nil when r is OK, and otherwise an error with the reasons that wraps [ErrFailed].
func (r DeterminismReport) Err() error { return failure(r.Name, r.OK(), r.Reasons) }

// String is the report for people.
func (r DeterminismReport) String() string {
	var b strings.Builder
	verdict(&b, r.Name, r.OK(), r.Reasons)
	fmt.Fprintf(&b, "  %d positions scored twice, two prompts in turn\n", r.Positions)
	return b.String()
}

// MarshalJSON writes the report for programs.
func (r DeterminismReport) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Name      string   `json:"name,omitempty"`
		OK        bool     `json:"ok"`
		Reasons   []Reason `json:"reasons"`
		Positions int      `json:"positions"`
	}{r.Name, r.OK(), append([]Reason{}, r.Reasons...), r.Positions})
}
