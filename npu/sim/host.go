package sim

import (
	"context"
	"slices"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
)

// debugHost is the host device in debug mode. It checks the bytes that host programs read, so it
// also finds a missing sync if part of the buffer has been synced.
type debugHost struct{ *cpu.Device }

// hostSide is the host side of a buffer, for host programs.
type hostSide struct {
	npu.Buffer
	of *buffer
}

// Submit executes runs on the host side of buffers. It returns a [*CoherencyError] and executes
// nothing if a run reads bytes that the device has written and nobody has synced. Bytes that a run
// writes belong to the host from then on.
func (h debugHost) Submit(ctx context.Context, runs []npu.Run) error {
	plain := make([]npu.Run, len(runs))
	written := map[*buffer]ranges{}
	for i := range runs {
		if err := runs[i].Check(); err != nil {
			return err
		}
		if err := checkReads(&runs[i], written); err != nil {
			return err
		}
		r := runs[i]
		r.Args = unwrap(r.Args)
		r.Segments = slices.Clone(r.Segments)
		for j := range r.Segments {
			r.Segments[j].State = unwrap(r.Segments[j].State)
		}
		plain[i] = r
	}
	for b, r := range written {
		b.overwritten(r)
	}
	return h.Device.Submit(ctx, plain)
}

// unwrap returns bufs with every hostSide replaced by its npu/cpu buffer.
func unwrap(bufs []npu.Buffer) []npu.Buffer {
	out := slices.Clone(bufs)
	for i, b := range out {
		if side, ok := b.(hostSide); ok {
			out[i] = side.Buffer
		}
	}
	return out
}

// checkReads returns an error if r reads dirty bytes that no earlier run overwrites, and adds the
// bytes that r writes to written.
func checkReads(r *npu.Run, written map[*buffer]ranges) error {
	p, size := r.Exec.Program(), r.Size()
	writes := map[*buffer]ranges{}
	state := 0
	for i, a := range p.Args {
		u := usesOf(p, i)
		if a.Kind != npu.State {
			if side, ok := r.Args[i].(hostSide); ok {
				all := span{0, a.Type.Bytes(size.Elements(a.Shape))}
				if a.Kind == npu.In || a.Kind == npu.Const {
					if err := side.of.read(ranges{all}, written[side.of], p.Name); err != nil {
						return err
					}
				}
				if u.writes {
					writes[side.of] = append(writes[side.of], all)
				}
			}
			continue
		}
		for _, s := range r.Segments {
			side, ok := s.State[state].(hostSide)
			if !ok {
				continue
			}
			if u.reads {
				to := s.Pos
				if u.early {
					to += s.Rows
				}
				if err := side.of.read(positions(a, side.of.size, 0, to), written[side.of],
					p.Name); err != nil {
					return err
				}
			}
			if u.writes {
				writes[side.of] = append(writes[side.of],
					positions(a, side.of.size, s.Pos, s.Pos+s.Rows)...)
			}
		}
		state++
	}
	for b, what := range writes {
		written[b] = append(written[b], what...)
	}
	return nil
}

// uses describes how a program uses an argument.
type uses struct {
	reads, writes bool
	// it reads before the first write; for a State that includes the positions of the run's rows
	early bool
}

func usesOf(p *npu.Program, arg int) (u uses) {
	for _, l := range p.Launches {
		operands := l.Op.Operands()
		for i, v := range l.Args {
			switch {
			case v.Arg != arg:
			case operands[i].Write: // an in-place cache update does not count as a read
				u.writes = true
			default:
				u.reads = true
				u.early = u.early || !u.writes
			}
		}
	}
	return u
}
