package main

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/npukit/npukit/internal/timeline"
	"github.com/npukit/npukit/npu"
)

// tracer collects what ran when, for a timeline. Each category of span has a track of its own: host
// work, programs, ops.
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

// write puts the trace into a file, whole or not at all.
func (t *tracer) write(path string) error {
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
		err = writeFile(path, data.Bytes())
	}
	if err != nil {
		return fmt.Errorf("writing the trace: %w", err)
	}
	return nil
}
