// Package trace collects spans of a run and writes them as a timeline for Perfetto.
package trace

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/npukit/npukit/internal/output"
	"github.com/npukit/npukit/internal/timeline"
	"github.com/npukit/npukit/npu"
)

// Tracer collects what ran when, for a timeline. Each category of span has a track of its own: host
// work, programs, ops.
type Tracer struct {
	started time.Time

	mu    sync.Mutex
	spans []npu.Span
}

func New() *Tracer { return &Tracer{started: time.Now()} }

// Add records a span; it is safe for concurrent use.
func (t *Tracer) Add(s npu.Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spans = append(t.spans, s)
}

// Write writes the trace to a file, whole or not at all.
func (t *Tracer) Write(path string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.SortStableFunc(t.spans, func(a, b npu.Span) int { return a.Start.Compare(b.Start) })
	p := timeline.Process{Name: "npukit", Tracks: []string{"host", "program", "op"}}
	for _, s := range t.spans {
		p.Spans = append(p.Spans, timeline.Span{Name: s.Name, Track: s.Category, Start: s.Start.Sub(t.started),
			Duration: s.Duration})
	}
	var data bytes.Buffer
	err := timeline.Timeline{Processes: []timeline.Process{p}}.Write(&data)
	if err == nil {
		err = output.File(path, data.Bytes())
	}
	if err != nil {
		return fmt.Errorf("writing the trace: %w", err)
	}
	return nil
}
