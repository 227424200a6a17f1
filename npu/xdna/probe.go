package xdna

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/npukit/npukit/npu"
)

// Probe holds the timings of [Device.ProbeArtefact].
type Probe struct {
	Open time.Duration // time to open a hardware context and the kernel
	Run  time.Duration // one warm dispatch over zeros; 0 if the manifest has no argument sizes
}

// ProbeArtefact opens an artefact on the NPU and, if its manifest has argument sizes, runs it over
// zeros. It is a diagnostic: it needs no program and does not check results.
func (d *Device) ProbeArtefact(ctx context.Context, a *Artefact) (p Probe, err error) {
	began := time.Now()
	err = d.probe(ctx, a, func(r run, args []memory) error {
		p.Open = time.Since(began)
		if len(args) == 0 {
			return nil
		}
		for i, m := range args {
			if err := m.sync(npu.ToDevice, 0, a.Arguments[i]); err != nil {
				return err
			}
		}
		for range 2 { // the first run loads the array configuration
			if p.Run, err = timed(ctx, r); err != nil {
				return err
			}
		}
		return nil
	})
	return p, err
}

func timed(ctx context.Context, r run) (time.Duration, error) {
	began := time.Now()
	err := r.start()
	if err == nil {
		err = r.wait(ctx)
	}
	return time.Since(began), err
}

// probe opens an artefact, creates a run with zeroed memory for the arguments in its manifest, and
// calls use with both. If ctx is done while the device is working, probe returns at once, and later
// calls wait until the device is idle.
func (d *Device) probe(ctx context.Context, a *Artefact, use func(r run, args []memory) error) (err error) {
	wrap := func(err error) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("npu/xdna: artefact %s: %w", a.Name, failure(err))
	}
	if err := d.acquire(ctx); err != nil {
		return err
	}
	var pending func(context.Context) error
	defer func() {
		if pending == nil {
			d.release()
		}
	}()
	if err := d.lock.lock(ctx); err != nil {
		return err
	}
	var closers []func() error
	defer func() {
		tidy := func() (err error) {
			for _, c := range slices.Backward(closers) {
				err = errors.Join(err, wrap(c()))
			}
			return err
		}
		if pending == nil {
			err = errors.Join(err, tidy(), d.lock.unlock())
			return
		}
		d.finishInBackground(pending, func(failed error) {
			if err := errors.Join(wrap(failed), tidy()); err != nil {
				d.log.Warn("a command of a canceled probe failed", "error", err)
			}
		})
	}()
	c, err := d.drv.load(a.Binary, a.isELF())
	if err != nil {
		return wrap(err)
	}
	closers = append(closers, c.close)
	hw, err := c.open()
	if err != nil {
		return wrap(err)
	}
	closers = append(closers, hw.close)
	k, err := hw.kernel(a)
	if err != nil {
		return wrap(err)
	}
	closers = append(closers, k.close)
	if len(a.Arguments) == 0 {
		return wrap(use(nil, nil))
	}
	if err := c.check(a, len(a.Arguments)); err != nil {
		return err
	}
	r, err := k.run()
	if err != nil {
		return wrap(err)
	}
	closers = append(closers, r.close)
	var args []memory
	for i, n := range a.Arguments {
		m, err := d.drv.alloc(n)
		if err != nil {
			return wrap(err)
		}
		closers = append(closers, m.close)
		if err := r.set(i, m); err != nil {
			return wrap(err)
		}
		args = append(args, m)
	}
	// the run is still in progress
	if err = use(r, args); err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		pending = r.wait
	}
	return wrap(err)
}

// CopyBandwidth measures the bandwidth of a host step in bytes per second: to for writing a buffer
// and syncing it to the device, from for syncing it back and reading it.
func (d *Device) CopyBandwidth(ctx context.Context, bytes int) (to, from float64, err error) {
	b, err := d.Alloc(ctx, bytes)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	data := make([]byte, bytes)
	measure := func(move func() error) (float64, error) {
		best := time.Duration(0)
		for range 4 { // the first iteration faults in the pages
			if err := ctx.Err(); err != nil {
				return 0, fmt.Errorf("npu/xdna: %w", err)
			}
			began := time.Now()
			if err := move(); err != nil {
				return 0, err
			}
			if took := max(time.Since(began), 1); best == 0 || took < best {
				best = took
			}
		}
		return float64(bytes) / best.Seconds(), nil
	}
	if to, err = measure(func() error {
		copy(b.Bytes(), data)
		return b.Sync(npu.ToDevice, 0,
			bytes)
	}); err != nil {
		return 0, 0, err
	}
	from, err = measure(func() error {
		err := b.Sync(npu.FromDevice, 0, bytes)
		copy(data, b.Bytes())
		return err
	})
	return to, from, err
}
