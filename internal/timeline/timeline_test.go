package timeline

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// A span lies on its track of its process, in microseconds.
func TestWrite(t *testing.T) {
	var b strings.Builder
	line := Timeline{Processes: []Process{
		{Name: "first", Tracks: []string{"host", "op"}},
		{Name: "second", Tracks: []string{"host", "op"},
			Spans: []Span{{"gemm", "op", 1500 * time.Nanosecond, time.Millisecond}, {"other", "elsewhere", 0, 0}}},
	}}
	if err := line.Write(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		TraceEvents     []event
		DisplayTimeUnit string
	}
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatal(err)
	}
	spans := map[string]event{}
	for _, e := range got.TraceEvents {
		if e.Phase == "X" {
			spans[e.Name] = e
		}
	}
	if e := spans["gemm"]; e.Process != 2 || e.Thread != 2 || e.Start != 1.5 || e.Duration != 1000 ||
		e.Category != "op" {
		t.Errorf("%+v", e)
	}
	if e := spans["other"]; e.Process != 2 || e.Thread != 1 {
		t.Errorf("%+v", e)
	}
	if len(got.TraceEvents) != 2*(1+2*2)+2 || got.DisplayTimeUnit != "ms" || strings.Contains(b.String(), "otherData") {
		t.Error(b.String())
	}
}
