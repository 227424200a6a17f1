package model

import (
	"context"
	"errors"
	"fmt"

	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
)

// cache is one session's keys and values, a buffer for each State argument of the plan's programs. It starts small and doubles, so that a
// session costs what it uses and not what the model's context would allow.
//
//	k.N, v.N [kvHeads, capacity, headDim]
type cache struct {
	side     map[string]npu.Device // of each buffer: the device, or its host
	typ      dtype.Type
	heads    int
	headDim  int
	limit    int  // positions at most
	padded   bool // programs on the device write the padding of a pass too
	capacity int  // positions that the buffers hold
	names    []string
	buffers  map[string]npu.Buffer
}

// firstCapacity is the number of positions of a new cache: a short question and its answer.
const firstCapacity = 256

func newCache(dev npu.Device, p *plan.Plan) *cache {
	c := &cache{side: map[string]npu.Device{}, typ: p.Cache, heads: p.Model.KVHeads, headDim: p.Model.HeadDim, limit: p.SeqLen, buffers: map[string]npu.Buffer{}}
	for _, pass := range p.Passes() {
		for _, s := range pass.Steps {
			for _, b := range s.Args {
				if b.State != "" && c.side[b.State] == nil {
					c.names = append(c.names, b.State)
					c.side[b.State] = dev
					if s.On == plan.OnHost {
						c.side[b.State] = npu.HostOf(dev)
					} else {
						c.padded = true
					}
				}
			}
		}
	}
	return c
}

// reserve makes room for so many positions and keeps the first used ones. It returns the buffers that are not needed any more, with an error as well, for the caller to close
// where nobody waits for it.
func (c *cache) reserve(ctx context.Context, positions, used int) (out map[string]npu.Buffer, err error) {
	if positions <= c.capacity {
		return nil, nil
	}
	if positions > c.limit {
		return nil, fmt.Errorf("model: %d positions, the plan allows %d", positions, c.limit)
	}
	capacity := min(max(positions, 2*c.capacity, firstCapacity), c.limit)
	row := c.typ.Bytes(c.headDim)
	grown := map[string]npu.Buffer{}
	fail := func(err error) (map[string]npu.Buffer, error) {
		return grown, fmt.Errorf("model: KV cache of %d positions: %w", capacity, err)
	}
	for _, name := range c.names {
		buf, err := c.side[name].Alloc(ctx, c.heads*capacity*row)
		if err != nil {
			return fail(err)
		}
		grown[name] = buf
		old := c.buffers[name]
		if old == nil || used == 0 {
			continue
		}
		if err := old.Sync(npu.FromDevice, 0, old.Len()); err != nil {
			return fail(err)
		}
		for h := range c.heads {
			copy(buf.Bytes()[h*capacity*row:][:used*row], old.Bytes()[h*c.capacity*row:])
		}
		if err := buf.Sync(npu.ToDevice, 0, buf.Len()); err != nil {
			return fail(err)
		}
	}
	out = c.take()
	c.buffers, c.capacity = grown, capacity
	return out, nil
}

// copy takes n positions from first on from another session's cache.
func (c *cache) copy(ctx context.Context, from *cache, first, n int) error {
	row := c.typ.Bytes(c.headDim)
	for _, name := range c.names {
		if err := ctx.Err(); err != nil {
			return err
		}
		src, dst := from.buffers[name], c.buffers[name]
		for h := range c.heads {
			a, b := (h*from.capacity+first)*row, (h*c.capacity+first)*row
			if err := src.Sync(npu.FromDevice, a, n*row); err != nil {
				return fmt.Errorf("model: KV cache of another session: %w", err)
			}
			copy(dst.Bytes()[b:][:n*row], src.Bytes()[a:][:n*row])
			if err := dst.Sync(npu.ToDevice, b, n*row); err != nil {
				return fmt.Errorf("model: KV cache: %w", err)
			}
		}
	}
	return nil
}

// bytes is the memory of the buffers.
func (c *cache) bytes() int {
	n := 0
	for _, b := range c.buffers {
		n += b.Len()
	}
	return n
}

// take leaves the cache without buffers, which the caller closes.
func (c *cache) take() map[string]npu.Buffer {
	out := c.buffers
	c.buffers, c.capacity = map[string]npu.Buffer{}, 0
	return out
}

// closeAll closes buffers, each after a pass that runs.
func closeAll(buffers map[string]npu.Buffer) error {
	var errs []error
	for _, b := range buffers {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}
