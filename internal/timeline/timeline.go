// Package timeline writes files in Chrome's Trace Event Format, which ui.perfetto.dev and
// chrome://tracing show: processes with tracks, and spans on them.
package timeline

import (
	"encoding/json"
	"io"
	"slices"
	"time"
)

// Timeline is a file's content.
type Timeline struct {
	Processes []Process
	Notes     map[string]string // shown with the file; nil for none
}

// Process is a group of tracks.
type Process struct {
	Name   string
	Tracks []string // from top to bottom
	Spans  []Span
}

// Span is a bar on a track.
type Span struct {
	Name            string
	Track           string // one of the process's; any other is shown on the first
	Start, Duration time.Duration
}

// event is an entry of the format: a complete event (ph X, times in microseconds) or metadata (ph
// M).
type event struct {
	Name     string         `json:"name"`
	Category string         `json:"cat,omitempty"`
	Phase    string         `json:"ph"`
	Start    float64        `json:"ts"`
	Duration float64        `json:"dur,omitempty"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	Args     map[string]any `json:"args,omitempty"`
}

// Write writes the file.
func (t Timeline) Write(w io.Writer) error {
	events := []event{}
	for i, p := range t.Processes {
		pid := i + 1
		events = append(events, event{Name: "process_name", Phase: "M", Process: pid,
			Args: map[string]any{"name": p.Name}})
		for j, name := range p.Tracks {
			events = append(events,
				event{Name: "thread_name", Phase: "M", Process: pid, Thread: j + 1, Args: map[string]any{"name": name}},
				event{Name: "thread_sort_index", Phase: "M", Process: pid, Thread: j + 1,
					Args: map[string]any{"sort_index": j + 1}})
		}
		for _, s := range p.Spans {
			events = append(events, event{Name: s.Name, Category: s.Track, Phase: "X", Process: pid,
				Thread: max(0, slices.Index(p.Tracks, s.Track)) + 1,
				Start:  microseconds(s.Start), Duration: microseconds(s.Duration)})
		}
	}
	return json.NewEncoder(w).Encode(struct {
		Events []event           `json:"traceEvents"`
		Unit   string            `json:"displayTimeUnit"`
		Notes  map[string]string `json:"otherData,omitempty"`
	}{events, "ms", t.Notes})
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
