package model

import (
	"context"
	"errors"
	"fmt"

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

func newCache(dev npu.Device, p *Plan) *cache {
	c := &cache{side: map[string]npu.Device{}, typ: p.Cache, heads: p.Model.KVHeads, headDim: p.Model.HeadDim, limit: p.SeqLen, buffers: map[string]npu.Buffer{}}
	for _, pass := range p.passes() {
		for _, s := range pass.Steps {
			for _, b := range s.Args {
				if b.State != "" && c.side[b.State] == nil {
					c.names = append(c.names, b.State)
					c.side[b.State] = dev
					if s.On == OnHost {
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

// reserve makes room for so many positions and keeps the first used ones.
func (c *cache) reserve(ctx context.Context, positions, used int) error {
	if positions <= c.capacity {
		return nil
	}
	if positions > c.limit {
		return fmt.Errorf("model: %d positions, the plan allows %d", positions, c.limit)
	}
	capacity := min(max(positions, 2*c.capacity, firstCapacity), c.limit)
	row := c.typ.Bytes(c.headDim)
	grown := map[string]npu.Buffer{}
	fail := func(err error) error {
		for _, b := range grown {
			err = errors.Join(err, b.Close())
		}
		return fmt.Errorf("model: KV cache of %d positions: %w", capacity, err)
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
	err := c.Close()
	c.buffers, c.capacity = grown, capacity
	return err
}

// copy takes n positions from first on from another session's cache.
func (c *cache) copy(from *cache, first, n int) error {
	row := c.typ.Bytes(c.headDim)
	for _, name := range c.names {
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

// Close frees the buffers.
func (c *cache) Close() error {
	var errs []error
	for _, b := range c.buffers {
		errs = append(errs, b.Close())
	}
	c.buffers, c.capacity = map[string]npu.Buffer{}, 0
	return errors.Join(errs...)
}
