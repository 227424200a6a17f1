package cpu

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/npukit/npukit/npu"
)

func TestMeter(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	forEachDevice(t, 2, func(t *testing.T, d *Device) {
		ctx := context.Background()
		m, err := d.NewMeter()
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		for range 2 {
			l, err := m.Measure(ctx)
			if err != nil || l.ReadBandwidth < 1e8 || l.PeakFLOPS < 1e8 || math.IsInf(l.ReadBandwidth, 0) ||
				math.IsInf(l.PeakFLOPS, 0) {
				t.Errorf("measured %+v, %v", l, err)
			}
		}
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(2*time.Millisecond, cancel) // it takes ten times as long
		if l, err := m.Measure(ctx); !errors.Is(err, context.Canceled) || l != (Limits{}) {
			t.Errorf("got %+v, %v, want context.Canceled", l, err)
		}
	})
}

// A meter that is closed, or whose device is, says so; it may be closed after its device, and twice.
func TestMeterClosed(t *testing.T) {
	d := open(t, &Options{Threads: 1})
	ctx := context.Background()
	closed, err := d.NewMeter()
	if err != nil {
		t.Fatal(err)
	}
	left, err := d.NewMeter()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := closed.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := closed.Measure(ctx); !errors.Is(err, npu.ErrClosed) {
		t.Errorf("of a closed meter: %v, want ErrClosed", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := left.Measure(ctx); !errors.Is(err, npu.ErrClosed) {
		t.Errorf("of a closed device: %v, want ErrClosed", err)
	}
	if err := left.Close(); err != nil {
		t.Error(err)
	}
}
