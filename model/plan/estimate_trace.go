package plan

import (
	"fmt"
	"io"
	"time"

	"github.com/npukit/npukit/internal/timeline"
)

// WriteTrace writes a predicted prefill and decoded token as a timeline for Perfetto
// (ui.perfetto.dev): one process each, with tracks for the host, transfers, dispatches and
// launches.
func (e *Estimate) WriteTrace(w io.Writer) error {
	if w == nil {
		return &OptionError{"w", nil, "a writer"}
	}
	t := timeline.Timeline{
		Notes: map[string]string{"host": e.Host, "note": "predicted, not measured. " + e.HostNote},
	}
	for _, pass := range []struct {
		name string
		*PassEstimate
	}{{"prefill, predicted", e.Prefill}, {"one token, predicted", e.Decode}} {
		p := timeline.Process{Name: pass.name, Tracks: []string{"host", "transfer", "dispatch", "launch"}}
		for _, s := range pass.spans {
			p.Spans = append(p.Spans, timeline.Span{Name: s.name, Track: s.category,
				Start: seconds(s.start), Duration: seconds(s.duration)})
		}
		t.Processes = append(t.Processes, p)
	}
	if err := t.Write(w); err != nil {
		return fmt.Errorf("plan: writing the trace: %w", err)
	}
	return nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
