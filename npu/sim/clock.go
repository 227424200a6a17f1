package sim

import (
	"fmt"
	"sync"
	"time"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/npu/xdna2"
)

// clock accumulates predicted times. It never reads the time of day.
type clock struct {
	model *xdna2.Clock

	mu sync.Mutex
	us float64
}

func newClock(host string) (*clock, error) {
	if host == "" {
		host = "npukit"
	}
	h, err := xdna2.HostProfile(host)
	if err != nil {
		return nil, fmt.Errorf("npu/sim: Options.Host: %w", err)
	}
	return &clock{model: xdna2.NewClock(h)}, nil
}

// prediction is the predicted time of one run of a program.
type prediction struct {
	launches []predictedLaunch // physical launches: the launches of one fused kernel are merged
	call     float64           // us: the dispatch, on the host
	run      float64           // us: the launches
}

type predictedLaunch struct {
	name string
	us   float64
}

// program predicts the time of a run of p. It is called once, because shapes are static.
func (c *clock) program(p *npu.Program) (prediction, error) {
	cost, err := c.model.Program(p, op.Size{})
	if err != nil {
		return prediction{}, err
	}
	t := prediction{call: c.model.Host.DecodeCall, run: cost.Run}
	for _, l := range p.Launches {
		if rows(l.Op) > 1 {
			t.call = c.model.Host.PrefillCall
		}
	}
	t.call += c.model.Host.Step
	for _, l := range cost.Launches {
		name := l.Name
		if l.Fused != "" {
			name = l.Fused
		}
		t.launches = append(t.launches, predictedLaunch{name, l.Time})
	}
	return t, nil
}

// rows returns the number of rows of the op's output.
func rows(o op.Op) int {
	for _, x := range o.Operands() {
		if x.Write && len(x.Shape) > 1 {
			return x.Shape[len(x.Shape)-2]
		}
	}
	return 1
}

func (c *clock) add(us float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.us += us
}

// transferred adds the time of a sync of n bytes.
func (c *clock) transferred(dir npu.Direction, n int) {
	us := c.model.Host.SyncCall
	if dir == npu.ToDevice {
		us += c.model.Host.Write(n)
	} else {
		us += c.model.Host.Read(n)
	}
	c.add(us)
}

func (c *clock) total() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return micros(c.us)
}

func micros(us float64) time.Duration { return time.Duration(us * float64(time.Microsecond)) }
