package model

import (
	"encoding/json"
	"fmt"
	"io"
)

// traceEvent is a complete event of the Trace Event Format, which Perfetto and chrome://tracing read. Times are microseconds.
type traceEvent struct {
	Name     string            `json:"name"`
	Category string            `json:"cat,omitempty"`
	Phase    string            `json:"ph"`
	Start    float64           `json:"ts"`
	Duration float64           `json:"dur,omitempty"`
	Process  int               `json:"pid"`
	Thread   int               `json:"tid"`
	Args     map[string]string `json:"args,omitempty"`
}

// The tracks of a trace, from top to bottom.
var traceTracks = []string{"host", "transfer", "dispatch", "launch"}

// WriteTrace writes a prefill and a token behind it as a timeline for Perfetto (ui.perfetto.dev): one process each, with tracks for the host, transfers, dispatches and
// launches. All of it is predicted.
func (e *Estimate) WriteTrace(w io.Writer) error {
	var events []traceEvent
	for i, pass := range []struct {
		name string
		*PassEstimate
	}{{"prefill, predicted", e.Prefill}, {"one token, predicted", e.Decode}} {
		events = append(events, traceEvent{Name: "process_name", Phase: "M", Process: i + 1, Args: map[string]string{"name": pass.name}})
		thread := map[string]int{}
		for t, name := range traceTracks {
			thread[name] = t + 1
			events = append(events, traceEvent{Name: "thread_name", Phase: "M", Process: i + 1, Thread: t + 1, Args: map[string]string{"name": name}})
		}
		for _, s := range pass.Spans {
			events = append(events, traceEvent{Name: s.Name, Category: s.Category, Phase: "X", Start: 1e6 * s.Start, Duration: 1e6 * s.Duration,
				Process: i + 1, Thread: thread[s.Category]})
		}
	}
	out := struct {
		Events []traceEvent      `json:"traceEvents"`
		Unit   string            `json:"displayTimeUnit"`
		Other  map[string]string `json:"otherData"`
	}{events, "ms", map[string]string{"host": e.Host, "note": "predicted, not measured. " + e.HostNote}}
	if err := json.NewEncoder(w).Encode(out); err != nil {
		return fmt.Errorf("model: writing the trace: %w", err)
	}
	return nil
}
