package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"strings"

	"github.com/npukit/npukit/npu/dtype"
)

// DeterminismReport is the result of [Determinism].
type DeterminismReport struct {
	Verdict // Judged counts positions, over all runs
}

// Determinism scores two prompts in the order a, b, a, b and fails if a prompt's logits differ in
// any bit the second time. A device that reads stale data, such as a buffer that was not synced or
// the other prompt's keys in the KV cache, answers differently then. Use prompts of different
// lengths, the longer one first, so that the second finds used cache beyond its end.
//
// It also fails if positions after the prompts' first difference have equal logits: the device then
// ignores its input.
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
		return DeterminismReport{}, badInput("a, b",
			"one prompt is a prefix of the other, so equal logits would be right: use other prompts")
	}
	var r DeterminismReport
	seed := maphash.MakeSeed()
	var first [2][]uint64
	for run := range 4 {
		ids := [][]int32{a, b}[run%2]
		hashes := make([]uint64, 0, len(ids))
		for logits, err := range positions(ctx, s, ids) {
			if err != nil {
				return r, err
			}
			// A 64-bit hash per row: rows that differ collide once in 2^64.
			hashes = append(hashes, maphash.Bytes(seed, dtype.AsBytes(logits)))
		}
		if run < 2 {
			first[run] = hashes
			continue
		}
		changed, at := 0, -1
		for pos, p := range hashes {
			if p != first[run%2][pos] {
				if changed++; at < 0 {
					at = pos
				}
			}
		}
		r.Judged += len(hashes)
		if changed > 0 {
			r.Reasons = append(r.Reasons, Reason{Repeats, fmt.Sprintf(
				"prompt %s scored again after the other one has other logits at %d of %d positions, "+
					"the first is %d: does it read stale data?",
				[]string{"a", "b"}[run%2], changed, len(hashes), at)})
		}
	}
	same := 0
	for pos := differ; pos < min(len(a), len(b)); pos++ {
		if first[0][pos] == first[1][pos] {
			same++
		}
	}
	if same > 0 {
		r.Reasons = append(r.Reasons, Reason{metricDistinct, fmt.Sprintf(
			"the prompts have bitwise equal logits at %d positions although their ids differ from "+
				"position %d: the device ignores its input there", same, differ)})
	}
	return r, nil
}

// String returns the report for people.
func (r DeterminismReport) String() string {
	var b strings.Builder
	r.head(&b)
	fmt.Fprintf(&b, "  %d positions scored twice, two prompts in turn\n", r.Judged)
	return b.String()
}

// MarshalJSON encodes the report for programs.
func (r DeterminismReport) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Name      string   `json:"name,omitempty"`
		OK        bool     `json:"ok"`
		Reasons   []Reason `json:"reasons"`
		Positions int      `json:"positions"`
	}{r.Name, r.OK(), append([]Reason{}, r.Reasons...), r.Judged})
}
