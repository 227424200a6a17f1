package cpu

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

func TestConstAliasesWhatKernelsRead(t *testing.T) {
	d := open(t, &Options{Threads: 2})
	for _, typ := range []dtype.Type{f32, bf, half} {
		data := make([]byte, typ.Bytes(6))
		from := tensors{"w": {Type: typ, Shape: []int{2, 3}, Data: data}}
		b := constant(t, d, "w", from)
		if unsafe.SliceData(b.Bytes()) != unsafe.SliceData(data) {
			t.Errorf("%s is copied", typ)
		}
		turned := constant(t, d, "transpose(w)", from)
		if unsafe.SliceData(turned.Bytes()) == unsafe.SliceData(data) {
			t.Errorf("a transposed %s is not", typ)
		}
	}
	odd := dtype.AsBytes(make([]uint64, 2))[1:13]
	if b := constant(t, d, "w", tensors{"w": {Type: bf, Shape: []int{2, 3},
		Data: odd}}); unsafe.SliceData(b.Bytes()) == unsafe.SliceData(odd) {
		t.Error("elements at odd addresses are read in place")
	}
}

func constant(t testing.TB, d *Device, layout string, from npu.Tensors) npu.Buffer {
	t.Helper()
	l, err := npu.ParseLayout(layout)
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Const(context.Background(), npu.Source{Layout: l, From: from})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestConstIsMadeOnceForAll(t *testing.T) {
	d := open(t, &Options{Threads: 2})
	from := tensors{"w": {Type: bf, Shape: []int{2, 3}, Data: make([]byte, 12)},
		"v": {Type: bf, Shape: []int{2, 3}, Data: make([]byte, 12)}}
	a, b, other := constant(t, d, "transpose(w)", from), constant(t, d, "transpose(w)", from),
		constant(t, d, "transpose(v)", from)
	if unsafe.SliceData(a.Bytes()) != unsafe.SliceData(b.Bytes()) {
		t.Error("the same layout of the same tensor is made twice")
	}
	if unsafe.SliceData(a.Bytes()) == unsafe.SliceData(other.Bytes()) {
		t.Error("two tensors share memory")
	}
	for range 2 { // closing twice gives up one use
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
	if len(d.consts) != 2 {
		t.Errorf("%d weights kept, want 2", len(d.consts))
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if len(d.consts) != 1 {
		t.Errorf("%d weights kept after the last use of one, want 1", len(d.consts))
	}
}

func TestConstExpandsBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, typ := range []dtype.Type{dtype.Q8_0, dtype.Q4_0, dtype.Q4_1, dtype.Q5_0, dtype.Q5_1, dtype.Q4_K, dtype.Q5_K,
		dtype.Q6_K} {
		const rows, cols = 301, 512
		data := make([]byte, typ.Bytes(rows*cols))
		for i := range data {
			data[i] = byte(rng.IntN(60)) // scales stay finite for all bytes
		}
		from := tensors{"w": {Type: typ, Shape: []int{rows, cols}, Data: data}}
		d := open(t, &Options{Threads: 2})
		want := make([]float32, rows*cols)
		if err := dtype.Dequantize(want, typ, data); err != nil {
			t.Fatal(err)
		}
		got := dtype.BFloat16s(constant(t, d, "w", from).Bytes())
		tail := dtype.BFloat16s(constant(t, d, "rows(w, 300, 301)", from).Bytes())
		for i, v := range want {
			if got[i] != dtype.FromFloat32(v) {
				t.Fatalf("%s: element %d is %v, want %v", typ, i, got[i].Float32(), v)
			}
			if i >= 300*cols && tail[i-300*cols] != got[i] {
				t.Fatalf("%s: element %d of the last row differs when the row is taken alone", typ, i-300*cols)
			}
		}
	}
}

func TestConstErrors(t *testing.T) {
	d := open(t, &Options{Threads: 1})
	from := tensors{"w": {Type: dtype.Q8_0, Shape: []int{64, 1024}, Data: make([]byte, dtype.Q8_0.Bytes(64*1024))}}
	if _, err := d.Const(context.Background(), npu.Source{Layout: npu.T("x"), From: from}); err == nil ||
		!strings.Contains(err.Error(), `"x"`) {
		t.Errorf("an unknown tensor: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := d.Const(ctx, npu.Source{Layout: npu.T("w"), From: from}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if len(d.consts) != 0 {
		t.Error("a failure is kept")
	}
}

// Const returns a quantized weight while another buffer of it is expanded to BF16. The race
// detector must report nothing.
func TestConstBesideItsBF16(t *testing.T) {
	d := open(t, &Options{Threads: 1})
	from := tensors{"w": {Type: dtype.Q8_0, Shape: []int{64, 1024}, Data: make([]byte, dtype.Q8_0.Bytes(64*1024))}}
	first := constant(t, d, "w", from)
	var wg sync.WaitGroup
	wg.Go(func() { first.Bytes() })
	if b := constant(t, d, "w", from); b.Len() != first.Len() {
		t.Errorf("%d bytes, want %d", b.Len(), first.Len())
	}
	wg.Wait()
}

// panics is a source that panics when it is asked so many times.
type panics struct {
	tensors
	left *int
}

func (p panics) Tensor(name string) (npu.Tensor, error) {
	if *p.left--; *p.left == 0 {
		panic("a test")
	}
	return p.tensors.Tensor(name)
}

// A source that panics, and is recovered as in a server, blocks no other user of its weight:
// who comes next is told so, or makes it.
func TestConstOfASourceThatPanics(t *testing.T) {
	d := open(t, &Options{Threads: 1})
	from := tensors{"w": {Type: dtype.Q8_0, Shape: []int{64, 1024}, Data: make([]byte, dtype.Q8_0.Bytes(64*1024))}}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	told := false
	for call := 1; ; call++ {
		left := call
		panicked := func() (yes bool) {
			defer func() { yes = recover() != nil }()
			b, err := d.Const(ctx, npu.Source{Layout: npu.T("w"), From: panics{from, &left}})
			if err != nil || b.Close() != nil {
				t.Error(err)
			}
			return false
		}()
		if !panicked {
			break
		}
		for again := range 2 {
			b, err := d.Const(ctx, npu.Source{Layout: npu.T("w"), From: from})
			switch {
			case err == nil:
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			case again == 0 && strings.Contains(err.Error(), "panicked"):
				told = true
			default:
				t.Fatalf("behind a panic of call %d: %v", call, err)
			}
		}
	}
	if !told || len(d.consts) != 0 {
		t.Errorf("somebody was told: %v; %d weights are kept", told, len(d.consts))
	}
}

// Who is first to want a weight may give up. Whoever waits for the same weight with a context that
// is alive gets it all the same.
func TestConstOutlivesTheFirstCallersContext(t *testing.T) {
	d := open(t, &Options{Threads: 1})
	from := tensors{"w": {Type: dtype.Q8_0, Shape: []int{64, 1024}, Data: make([]byte, dtype.Q8_0.Bytes(64*1024))}}
	key, err := npu.Source{Layout: npu.T("w"), From: from}.Key()
	if err != nil {
		t.Fatal(err)
	}
	// The first caller, stopped in the middle of the making.
	first, mine := d.share(key)
	if !mine {
		t.Fatal("somebody else makes it")
	}
	ask := func(ctx context.Context) <-chan error {
		done := make(chan error)
		go func() {
			b, err := d.Const(ctx, npu.Source{Layout: npu.T("w"), From: from})
			if err == nil {
				err = b.Close()
			}
			done <- err
		}()
		return done
	}
	waits := func(users int) {
		for waiting := false; !waiting; runtime.Gosched() {
			d.mu.Lock()
			waiting = first.users == users
			d.mu.Unlock()
		}
	}
	patient := ask(context.Background())
	waits(2)
	// Who waits may give up, too, without waiting for the first.
	ctx, cancel := context.WithCancel(context.Background())
	hasty := ask(ctx)
	waits(3)
	cancel()
	if err := <-hasty; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "weight w") {
		t.Errorf("who gave up got %v, want context.Canceled of weight w", err)
	}
	first.err = context.Canceled
	close(first.made)
	first.release(d)
	if err := <-patient; err != nil {
		t.Errorf("with a context that is alive: %v", err)
	}
	if len(d.consts) != 0 {
		t.Errorf("%d weights are kept, want none", len(d.consts))
	}
}

// A real artefact's shape: gate and up interleaved row by row, a const whose first row the program
// writes, dead arguments, vectors for rows.
func TestViewsAndScratchRows(t *testing.T) {
	const emb, hid = 70, 90
	p := npu.NewProgram("ffn")
	x := p.In("x", bf, emb)
	packed := p.Const("packed", bf, 2, emb).WithScratchRows(1)
	gateUp := p.Const("gate_up", bf, 2*hid, emb)
	p.Scratch("dead", bf, 1<<20, 1<<6)
	normed, both, y := p.Scratch("normed", bf, emb), p.Scratch("both", bf, 2*hid), p.Out("y", f32, hid)
	sum, norm := packed.Rows(0, 1), packed.Rows(1, 1)
	p.Launch("residual", op.Add{Rows: 1, Width: emb}, x, x, sum)
	p.Launch("norm", op.RMSNorm{Rows: 1, Width: emb, Eps: 1e-5}, sum, norm, normed)
	p.Launch("gate", op.MatMul{M: 1, K: emb, N: hid, TransB: true}, normed, gateUp.Every(0, 2),
		both.As(1, 2*hid).Cols(0, hid))
	p.Launch("up", op.MatMul{M: 1, K: emb, N: hid, TransB: true}, normed, gateUp.Every(1, 2),
		both.As(1, 2*hid).Cols(hid, hid))
	p.Launch("act", op.SiLUMul{Rows: 1, Width: hid}, both.As(1, 2*hid).Cols(0, hid), both.As(1, 2*hid).Cols(hid, hid),
		y)
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	tensor := func(rows, cols int) (npu.Tensor, []float64) {
		w, data := random(rng, rows*cols), make([]byte, 2*rows*cols)
		encode(data, bf, w)
		return npu.Tensor{Type: bf, Shape: []int{rows, cols}, Data: data}, w
	}
	normT, normX := tensor(1, emb)
	gateT, gateX := tensor(hid, emb)
	upT, upX := tensor(hid, emb)
	from := tensors{"norm": normT, "gate": gateT, "up": upT}

	xs := random(rng, emb)
	twice := make([]float64, emb)
	xb := make([]byte, 2*emb)
	encode(xb, bf, xs)
	for i := range xs {
		twice[i] = 2 * xs[i]
	}
	round := func(x []float64) []float64 { encode(make([]byte, 2*len(x)), bf, x); return x }
	n := round(reference(op.RMSNorm{Rows: 1, Width: emb, Eps: 1e-5}, [][]float64{twice, normX}))
	g := round(reference(op.MatMul{M: 1, K: emb, N: hid, TransB: true}, [][]float64{n, gateX}))
	u := round(reference(op.MatMul{M: 1, K: emb, N: hid, TransB: true}, [][]float64{n, upX}))
	want := reference(op.SiLUMul{Rows: 1, Width: hid}, [][]float64{g, u})

	forEachDevice(t, 2, func(t *testing.T, d *Device) {
		e, err := d.Load(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		in, out := alloc(t, d, 2*emb), alloc(t, d, 4*hid)
		copy(in.Bytes(), xb)
		args := []npu.Buffer{in, constant(t, d, "stack(zeros(1, 70), norm)", from),
			constant(t, d, "interleave(gate, up)", from), nil, nil, nil, out}
		for range 2 {
			if err := d.Submit(context.Background(), []npu.Run{{Exec: e, Args: args}}); err != nil {
				t.Fatal(err)
			}
			// Values between ops are rounded to BF16, where a last place may fall either way.
			got := decode(t, out.Bytes(), f32, hid)
			for i := range got {
				if diff := got[i] - want[i]; diff > 0.1 || diff < -0.1 {
					t.Fatalf("element %d is %g, want %g", i, got[i], want[i])
				}
			}
		}
	})
}
