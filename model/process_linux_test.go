package model

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/npu/cpu"
)

// processorTime returns the CPU time of the process.
func processorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// afterward runs some generating sessions and returns the CPU time that the process uses after the
// last token, within wait.
func afterward(tb testing.TB, m *Model, sessions int, wait time.Duration) time.Duration {
	tb.Helper()
	done := make(chan error)
	for i := range sessions {
		go func() {
			var failed error
			for _, err := range m.Generate(context.Background(), IDs([]int32{int32(i + 1)}),
				&GenerateOptions{MaxTokens: 20, IgnoreEOS: true}) {
				failed = err
			}
			done <- failed
		}()
	}
	for range sessions {
		if err := <-done; err != nil {
			tb.Fatal(err)
		}
	}
	began := processorTime(tb)
	time.Sleep(wait)
	return processorTime(tb) - began
}

// Idle threads spin for about a millisecond and then sleep.
func TestThreadsSleep(t *testing.T) {
	m := open(t, tiny("smollm-mha"), "", nil)
	for _, sessions := range []int{1, 4} {
		best := time.Hour
		for range 5 { // the collector may be at work once
			best = min(best, afterward(t, m, sessions, 100*time.Millisecond))
		}
		if best > 10*time.Millisecond {
			t.Errorf("%d sessions: the process uses %v of the 100 ms after the last token", sessions, best)
		}
	}
}

// BenchmarkAfterLastToken measures the CPU time of all cores in the 50 ms after the last token:
//
//	go test -run '^$' -bench AfterLastToken -benchtime 20x ./model
func BenchmarkAfterLastToken(b *testing.B) {
	m := open(b, tiny("smollm-mha"), "", nil)
	afterward(b, m, 1, time.Millisecond)
	var used time.Duration
	for b.Loop() {
		used += afterward(b, m, 1, 50*time.Millisecond)
	}
	b.ReportMetric(used.Seconds()*1e3/float64(b.N), "busy-ms")
	b.ReportMetric(0, "ns/op")
}

// peak returns the peak resident memory of the process since the last call, and resets it.
func peak(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	n, err := strconv.Atoi(string(bytes.TrimSpace(rest[:bytes.Index(rest, []byte("kB"))])))
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}

// A prompt almost as long as the context, and an answer, need memory for the weights and the KV
// cache and little more: no buffer grows with the square of the prompt's length, and only the KV
// cache grows with its length.
func TestLongPromptMemory(t *testing.T) {
	if os.Getenv("NPUKIT_LONG") == "" {
		t.Skip("reads a prompt of 8184 tokens: set NPUKIT_LONG=1")
	}
	path := t.TempDir()
	// SmolLM2-135M's shape.
	spec := ckptgen.Spec{
		Family:    "llama",
		Layers:    30,
		Hidden:    576,
		Heads:     9,
		KVHeads:   3,
		FFN:       1536,
		Vocab:     49152,
		Context:   8192,
		Tie:       true,
		RopeTheta: 100000,
	}
	if err := ckptgen.Write(path, spec, 1); err != nil {
		t.Fatal(err)
	}
	dev, err := cpu.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o600); err != nil { // the peak begins anew
		t.Skip(err)
	}
	before := peak(t)
	m, err := Open(context.Background(), dev, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	opened := peak(t)
	s := m.NewSession()
	defer s.Close()
	const answer = 8
	ids := make([]int32, m.Context()-answer)
	for i := range ids {
		ids[i] = int32(i * 7919 % m.Plan().Model.Vocab)
	}
	var stats Stats
	for _, err := range s.Generate(context.Background(), IDs(ids),
		&GenerateOptions{MaxTokens: answer, IgnoreEOS: true, Stats: &stats}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	weights := 2 * int(m.Checkpoint().Parameters())
	kv, used, values := s.seq.cache.bytes(), peak(t), 0
	for _, v := range m.exec.values {
		if v.buf != nil {
			values += v.buf.Len()
		}
	}
	mb := func(n int) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
	t.Logf(
		"a prompt of %d tokens in %v (%.0f tokens/s): "+
			"peak %s, before the model was opened %s, with it open %s; "+
			"weights %s, KV cache %s, values between programs %s",
		len(ids), stats.TTFT.Round(time.Millisecond), float64(len(ids))/stats.TTFT.Seconds(),
		mb(used), mb(before), mb(opened), mb(weights), mb(kv), mb(values))
	if most := weights*12/10 + kv; used > most {
		t.Errorf("the peak is %s, 1.2 x weights + KV cache is %s", mb(used), mb(most))
	}
}
