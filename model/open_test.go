package model

import (
	"context"
	"errors"
	"testing"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
)

// cancelling is a device on which a context ends after so many weights.
type cancelling struct {
	npu.Device
	weights int
	cancel  context.CancelFunc
}

func (d *cancelling) Const(ctx context.Context, src npu.Source) (npu.Buffer, error) {
	if d.weights--; d.weights == 0 {
		d.cancel()
	}
	return d.Device.Const(ctx, src)
}

// Opening can be cancelled anywhere: it gives the context's error and frees what it had, so that the model opens afterwards.
func TestOpenCancelled(t *testing.T) {
	dev, err := cpu.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for _, weights := range []int{1, 2, 10} {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		m, err := Open(ctx, &cancelling{dev, weights, cancel}, tiny("qwen3-qknorm"), nil)
		if m != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled at weight %d: %v, %v, want context.Canceled", weights, m, err)
		}
	}
	m, err := Open(context.Background(), dev, tiny("qwen3-qknorm"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}
