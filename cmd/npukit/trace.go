package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/npukit/npukit/npu"
)

// tracer collects what ran when, for a file in Chrome's trace event format, which ui.perfetto.dev and chrome://tracing show. Each category of
// span has a track of its own: host work, programs, ops.
type tracer struct {
	started time.Time

	mu    sync.Mutex
	spans []npu.Span
}

func newTracer() *tracer { return &tracer{started: time.Now()} }

// add takes a span; it is safe for concurrent use.
func (t *tracer) add(s npu.Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spans = append(t.spans, s)
}

// tracks are the categories of spans from top to bottom; the index is the track's thread id.
var tracks = [...]string{1: "host", 2: "program", 3: "op"}

// traceEvent is one entry of the format: a complete event (ph X, times in microseconds) or metadata (ph M).
type traceEvent struct {
	Name     string         `json:"name"`
	Category string         `json:"cat,omitempty"`
	Phase    string         `json:"ph"`
	Start    float64        `json:"ts"`
	Duration float64        `json:"dur,omitempty"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	Args     map[string]any `json:"args,omitempty"`
}

// write puts the trace into a file, whole or not at all.
func (t *tracer) write(path string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	events := []traceEvent{{Name: "process_name", Phase: "M", Process: 1, Args: map[string]any{"name": "npukit"}}}
	for id, name := range tracks {
		if name != "" {
			events = append(events,
				traceEvent{Name: "thread_name", Phase: "M", Process: 1, Thread: id, Args: map[string]any{"name": name}},
				traceEvent{Name: "thread_sort_index", Phase: "M", Process: 1, Thread: id, Args: map[string]any{"sort_index": id}})
		}
	}
	slices.SortStableFunc(t.spans, func(a, b npu.Span) int { return a.Start.Compare(b.Start) })
	for _, s := range t.spans {
		events = append(events, traceEvent{
			Name: s.Name, Category: s.Category, Phase: "X", Process: 1, Thread: max(1, slices.Index(tracks[:], s.Category)),
			Start: microseconds(s.Start.Sub(t.started)), Duration: microseconds(s.Duration),
		})
	}
	data, err := json.Marshal(map[string]any{"traceEvents": events, "displayTimeUnit": "ms"})
	if err == nil {
		err = writeFile(path, data)
	}
	if err != nil {
		return fmt.Errorf("writing the trace: %w", err)
	}
	return nil
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
