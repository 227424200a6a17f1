package golden

import (
	"encoding/json"
	"fmt"
	"slices"
)

// document is the JSON format.
type document struct {
	Source  string `json:"source"`
	Prompts []struct {
		User      string      `json:"user"`
		IDs       []int32     `json:"input_ids"`
		TopIDs    [][]int32   `json:"top_ids"`
		TopLogits [][]float64 `json:"top_logits"`
		LogSumExp []float64   `json:"logsumexp"`
		Greedy    []int32     `json:"greedy"`
		Gaps      []float64   `json:"greedy_top2_gap"`
	} `json:"prompts"`
	Text *struct {
		File string    `json:"file"`
		IDs  []int32   `json:"input_ids"`
		NLL  []float64 `json:"nll"`
	} `json:"text"`
}

func parseJSON(data []byte) (*File, error) {
	var d document
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fmt.Errorf("not a golden file in JSON: %w", err)
	}
	f := &File{Source: d.Source}
	for i, p := range d.Prompts {
		s := Sequence{Name: p.User, Place: fmt.Sprintf("prompts[%d]", i), IDs: p.IDs, Greedy: p.Greedy, Gaps: p.Gaps}
		if s.Name == "" {
			s.Name = fmt.Sprintf("prompt %d", i)
		}
		if n := len(p.TopIDs); len(p.TopLogits) != n || len(p.LogSumExp) != n {
			return nil, fmt.Errorf("prompt %d: top_ids, top_logits and logsumexp have %d, %d and %d "+
				"positions", i, n, len(p.TopLogits), len(p.LogSumExp))
		}
		for pos, ids := range p.TopIDs {
			s.Top = append(s.Top, Top{ids, p.TopLogits[pos], p.LogSumExp[pos]})
		}
		f.Sequences = append(f.Sequences, s)
	}
	if d.Text != nil {
		f.Sequences = append(f.Sequences, Sequence{Name: d.Text.File, Place: "text", IDs: d.Text.IDs,
			NLL: slices.Clone(d.Text.NLL)})
	}
	return f, nil
}
