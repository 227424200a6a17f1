package sim

import (
	"context"
	"slices"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
)

// watchedHost is the host's device in debug mode. What its programs read is known to the byte, so that a sync that is missing is found at
// once, also where a part has been synced.
type watchedHost struct{ *cpu.Device }

// hostSide is the host's side of a buffer, for its programs.
type hostSide struct {
	npu.Buffer
	of *buffer
}

// Submit executes runs on the host's side of buffers. A run that reads what the device has written and nobody has synced is a
// [*CoherencyError], and none is executed then.
func (h watchedHost) Submit(ctx context.Context, runs []npu.Run) error {
	plain := make([]npu.Run, len(runs))
	for i := range runs {
		r := runs[i]
		if err := r.Check(); err != nil {
			return err
		}
		p, size := r.Exec.Program(), r.Size()
		r.Args = make([]npu.Buffer, len(runs[i].Args))
		for j, b := range runs[i].Args {
			side, ok := b.(hostSide)
			if !ok {
				r.Args[j] = b
				continue
			}
			r.Args[j] = side.Buffer
			if a := p.Args[j]; a.Kind == npu.In || a.Kind == npu.Const {
				if err := side.of.read(a.Type.Bytes(size.Elements(a.Shape)), p.Name); err != nil {
					return err
				}
			}
		}
		r.Segments = slices.Clone(r.Segments)
		for j := range r.Segments {
			states := slices.Clone(r.Segments[j].State)
			for k, b := range states {
				if side, ok := b.(hostSide); ok {
					states[k] = side.Buffer
				}
			}
			r.Segments[j].State = states
		}
		plain[i] = r
	}
	return h.Device.Submit(ctx, plain)
}
