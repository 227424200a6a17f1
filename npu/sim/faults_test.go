package sim

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
)

// Injected faults return the errors of a real device, and the usual recovery works.
func TestFaults(t *testing.T) {
	t.Run("timeout", func(t *testing.T) {
		s := newSums(t, &Options{Faults: &Faults{Timeout: 1}})
		if err := s.submit(t.Context()); !errors.Is(err, npu.ErrTimeout) ||
			!strings.Contains(err.Error(), `"r"`) {
			t.Errorf("%v, want ErrTimeout of run r", err)
		}
	})
	t.Run("lost", func(t *testing.T) {
		s := newSums(t, &Options{Contexts: 1, Faults: &Faults{Lost: 0.5, Seed: 1}})
		lost := false
		for range 20 {
			err := s.submit(t.Context())
			if lost && !errors.Is(err, npu.ErrDeviceLost) {
				t.Fatalf("%v, want ErrDeviceLost until the program is reloaded", err)
			}
			if !lost && err != nil {
				if !errors.Is(err, npu.ErrDeviceLost) {
					t.Fatal(err)
				}
				lost = true
				continue
			}
			if lost {
				if s.e, err = s.d.Load(t.Context(), sum(sumWidth)); err != nil {
					t.Fatal(err)
				}
				lost = false
			}
		}
		for s.submit(t.Context()) != nil {
			var err error
			if s.e, err = s.d.Load(t.Context(), sum(sumWidth)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.y.Sync(npu.FromDevice, 0, 2); err != nil {
			t.Fatal(err)
		}
		if got := first(s.y); got != 3 {
			t.Errorf("1 + 2 = %g after the context was lost: buffers must survive", got)
		}
	})
	t.Run("no context", func(t *testing.T) {
		s := newSums(t, &Options{Faults: &Faults{NoContext: 1}})
		if err := s.submit(t.Context()); !errors.Is(err, npu.ErrNoContext) ||
			!strings.Contains(err.Error(), `"r"`) {
			t.Errorf("%v, want ErrNoContext of run r", err)
		}
	})
	t.Run("refused", func(t *testing.T) {
		d := open(t, &Options{Faults: &Faults{Refuse: 1}})
		if _, err := d.Alloc(t.Context(), 64); !errors.Is(err, npu.ErrMemory) {
			t.Errorf("%v, want ErrMemory", err)
		}
	})
	t.Run("flipped", func(t *testing.T) {
		var seen [2][]byte
		for i := range seen {
			s := newSums(t, &Options{Faults: &Faults{Flip: 1, Seed: 5}})
			if err := s.submit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := s.y.Sync(npu.FromDevice, 0, s.y.Len()); err != nil {
				t.Fatal(err)
			}
			seen[i] = bytes.Clone(s.y.Bytes())
			wrong := 0
			for _, v := range dtype.BFloat16s(s.y.Bytes()) {
				if v.Float32() != 3 {
					wrong++
				}
			}
			if wrong != 1 {
				t.Errorf("%d wrong elements, want one", wrong)
			}
		}
		if !bytes.Equal(seen[0], seen[1]) {
			t.Error("the same seed flipped another bit")
		}
	})
	t.Run("not a probability", func(t *testing.T) {
		if _, err := Open(&Options{Faults: &Faults{Flip: math.NaN()}}); err == nil {
			t.Error("accepted")
		}
	})
}
