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
// [*CoherencyError], and none is executed then. What a run writes is the host's own from then on.
func (h watchedHost) Submit(ctx context.Context, runs []npu.Run) error {
	plain := make([]npu.Run, len(runs))
	written := map[*buffer]ranges{}
	for i := range runs {
		if err := runs[i].Check(); err != nil {
			return err
		}
		if err := watch(&runs[i], written); err != nil {
			return err
		}
		r := runs[i]
		r.Args = plainSides(r.Args)
		r.Segments = slices.Clone(r.Segments)
		for j := range r.Segments {
			r.Segments[j].State = plainSides(r.Segments[j].State)
		}
		plain[i] = r
	}
	for b, r := range written {
		b.overwritten(r)
	}
	return h.Device.Submit(ctx, plain)
}

// plainSides are buffers as npu/cpu knows them.
func plainSides(bufs []npu.Buffer) []npu.Buffer {
	out := slices.Clone(bufs)
	for i, b := range out {
		if side, ok := b.(hostSide); ok {
			out[i] = side.Buffer
		}
	}
	return out
}

// watch checks what a run reads, and adds what it writes to what the runs before it write.
func watch(r *npu.Run, written map[*buffer]ranges) error {
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
				if err := side.of.read(positions(a, side.of.size, 0, to), written[side.of], p.Name); err != nil {
					return err
				}
			}
			if u.writes {
				writes[side.of] = append(writes[side.of], positions(a, side.of.size, s.Pos, s.Pos+s.Rows)...)
			}
		}
		state++
	}
	for b, what := range writes {
		written[b] = append(written[b], what...)
	}
	return nil
}

// uses is what a program does with an argument.
type uses struct {
	reads, writes bool
	early         bool // reads before it writes, if it does: of a State, also the positions of the run's own rows
}

func usesOf(p *npu.Program, arg int) (u uses) {
	for _, l := range p.Launches {
		operands := l.Op.Operands()
		for i, v := range l.Args {
			switch {
			case v.Arg != arg:
			case operands[i].Write: // a cache that is updated in place is not read for that
				u.writes = true
			default:
				u.reads = true
				u.early = u.early || !u.writes
			}
		}
	}
	return u
}
