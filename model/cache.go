package model

import (
	"context"
	"errors"
	"fmt"

	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
)

// cache is the KV cache of a session, with a buffer for each State argument of the plan's programs.
// It starts small and doubles, so its size follows the session's length and not the model's
// context.
//
//	k.N, v.N [kvHeads, capacity, headDim]
type cache struct {
	side     map[string]npu.Device // of each buffer: the device or its host
	typ      dtype.Type
	heads    int
	headDim  int
	limit    int  // most positions
	padded   bool // programs on the device also write the padding of a pass
	capacity int  // positions that the buffers hold
	names    []string
	buffers  map[string]npu.Buffer
}

// firstCapacity is the capacity of a new cache: enough for a short question and its answer.
const firstCapacity = 256

func newCache(dev npu.Device, p *plan.Plan) *cache {
	c := &cache{
		side:    map[string]npu.Device{},
		typ:     p.Cache,
		heads:   p.Model.KVHeads,
		headDim: p.Model.HeadDim,
		limit:   p.SeqLen,
		buffers: map[string]npu.Buffer{},
	}
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

// reserve grows the cache to the given positions and preserves the first used ones. It returns the
// buffers that are no longer needed, even with an error. The caller closes them without holding
// locks.
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

// copy copies n positions, starting at first, from another session's cache.
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

// bytes returns the size of the buffers.
func (c *cache) bytes() int {
	n := 0
	for _, b := range c.buffers {
		n += b.Len()
	}
	return n
}

// take removes the buffers from the cache. The caller closes them.
func (c *cache) take() map[string]npu.Buffer {
	out := c.buffers
	c.buffers, c.capacity = map[string]npu.Buffer{}, 0
	return out
}

// closeAll closes buffers. A device may delay each until the running pass ends.
func closeAll(buffers map[string]npu.Buffer) error {
	var errs []error
	for _, b := range buffers {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}
