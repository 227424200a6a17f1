package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// goEngine executes commands with goroutines and kernels in Go.
type goEngine struct {
	threads int
	workers []goWorker
}

// goWorker is one thread's scratch memory.
type goWorker struct {
	weights  []float32 // rows of weights, keys or values as FP32
	rows     [3][]float32
	scores   []float32
	fixed    []fixedBlock // activations of the command fixedFor, row after row
	fixedFor *command
	cancel   *uint32
}

// cancelled is looked at inside chunks that take long.
func (w *goWorker) cancelled() bool { return atomic.LoadUint32(w.cancel) != 0 }

func newGoEngine(threads int) engine {
	return &goEngine{threads: threads, workers: make([]goWorker, threads)}
}

func (e *goEngine) name() string                         { return "go" }
func (e *goEngine) multiplies(_, _ int32, _ bool) int32  { return 0 }
func (e *goEngine) multipliesFew(_, _ int32) int32       { return 0 }
func (e *goEngine) rounds() bool                         { return false }
func (e *goEngine) attends(_, _, _ int32, _ int64) int32 { return 0 }
func (e *goEngine) inPlaceRows(_, _ int32) int64         { return 0 }
func (e *goEngine) packBytes(m, k int64, _ int32) int64  { return m * k * 4 }
func (e *goEngine) attentionBytes(*command) int64        { return 0 }
func (e *goEngine) close()                               {}

func (e *goEngine) gemvRows(a, w int32) int64 {
	if isGrouped(w) && a == typeBF16 {
		return goGEMVRows
	}
	return 0
}

// goKernel is one kind of command in Go: how many chunks it has, and what a chunk does. Chunks are independent of each other.
type goKernel struct {
	chunks func(c *command) int64
	do     func(w *goWorker, c *command, chunk int64)
}

var goKernels = [...]goKernel{
	kindPack:      {rowChunks, (*goWorker).pack},
	kindGEMM:      {gemmChunks, (*goWorker).gemm},
	kindGEMV:      {gemvChunks, (*goWorker).gemv},
	kindEmbed:     {rowChunks, (*goWorker).embed},
	kindRMSNorm:   {rowChunks, (*goWorker).rmsNorm},
	kindLayerNorm: {rowChunks, (*goWorker).layerNorm},
	kindRoPE:      {rowChunks, (*goWorker).rope},
	kindKVWrite:   {func(c *command) int64 { return c.nsegs }, (*goWorker).kvWrite},
	kindAttention: {attentionChunks, (*goWorker).attention},
	kindSiLUMul:   {rowChunks, (*goWorker).siluMul},
	kindGELU:      {rowChunks, (*goWorker).gelu},
	kindAdd:       {rowChunks, (*goWorker).add},
	kindCopy:      {copyChunks, (*goWorker).copy},
}

// run walks the commands with all threads at once, as the C engine does.
func (e *goEngine) run(cmds []command, cancel *uint32, trace bool) (cancelled bool, err error) {
	b := newBarrier(e.threads)
	began := time.Now()
	walk := func(id int) {
		w := &e.workers[id]
		w.cancel, w.fixedFor = cancel, nil
		for i := range cmds {
			c := &cmds[i]
			if c.barrier != 0 {
				b.wait()
			}
			if trace && id == 0 {
				c.start = int64(time.Since(began))
			}
			k := &goKernels[c.kind]
			for n := k.chunks(c); atomic.LoadUint32(cancel) == 0; {
				j := atomic.AddInt64(&c.next[0], 1) - 1
				if j >= n {
					break
				}
				k.do(w, c, j)
			}
			if trace {
				if i+1 == len(cmds) || cmds[i+1].barrier != 0 {
					b.wait()
				}
				if id == 0 {
					c.end = int64(time.Since(began))
				}
			}
		}
	}
	var wg sync.WaitGroup
	for id := 1; id < e.threads; id++ {
		wg.Go(func() { walk(id) })
	}
	walk(0)
	wg.Wait()
	return atomic.LoadUint32(cancel) != 0, nil
}

// barrier lets a number of goroutines wait for each other, again and again. Who waits looks a few times, since the others are mostly almost there, and then sleeps: on a machine
// with other work the one that is waited for may have no processor.
type barrier struct {
	threads int64
	arrived atomic.Int64
	round   atomic.Int64
	mu      sync.Mutex
	next    *sync.Cond // the round has changed
}

// barrierLooks is how often a goroutine looks before it sleeps: for a few tenths of a millisecond.
const barrierLooks = 2000

func newBarrier(threads int) *barrier {
	b := &barrier{threads: int64(threads)}
	b.next = sync.NewCond(&b.mu)
	return b
}

func (b *barrier) wait() {
	if b.threads == 1 {
		return
	}
	round := b.round.Load()
	if b.arrived.Add(1) == b.threads {
		b.arrived.Store(0)
		b.mu.Lock()
		b.round.Add(1)
		b.mu.Unlock()
		b.next.Broadcast()
		return
	}
	for range barrierLooks {
		if b.round.Load() != round {
			return
		}
		runtime.Gosched()
	}
	b.mu.Lock()
	for b.round.Load() == round {
		b.next.Wait()
	}
	b.mu.Unlock()
}

// chunkElements is about how many elements a chunk of a row-wise kernel has.
const chunkElements = 1 << 14

// rowsOf is the range of rows of a chunk of a row-wise command.
func rowsOf(c *command, chunk int64) (from, to int64) {
	step := rowStep(c)
	return chunk * step, min(c.m, (chunk+1)*step)
}

func rowStep(c *command) int64 { return max(1, chunkElements/(max(1, c.n)*max(1, c.k))) }

func rowChunks(c *command) int64 { return (c.m + rowStep(c) - 1) / rowStep(c) }

// grow gives n elements of undefined content.
func grow(s *[]float32, n int64) []float32 {
	if int64(len(*s)) < n {
		*s = make([]float32, n)
	}
	return (*s)[:n]
}

// peak multiplies small matrices from the nearest cache.
func (e *goEngine) peak(length time.Duration, rounds int) (float64, error) {
	best := 0.0
	for range rounds {
		var products atomic.Int64
		began := time.Now()
		const k = 256
		var wg sync.WaitGroup
		for range e.threads {
			wg.Go(func() {
				a, b := make([]float32, 2*k), make([]float32, 4*k)
				var y, z [4]float32
				for time.Since(began) < length {
					for range 64 {
						dot2x4(&y, &z, a[:k], a[k:], b)
					}
					products.Add(64 * 8 * k)
				}
			})
		}
		wg.Wait()
		best = max(best, 2*float64(products.Load())/time.Since(began).Seconds())
	}
	return best, nil
}

func (e *goEngine) readBandwidth(m memory, cancel *uint32) (float64, error) {
	words := unsafe.Slice((*uint64)(m.ptr()), meterBytes/8)
	best := 0.0
	var sink atomic.Uint64
	for range 2 {
		began := time.Now()
		var wg sync.WaitGroup
		part := len(words) / e.threads
		for id := range e.threads {
			wg.Go(func() {
				var a, b, c, d uint64
				for w := words[id*part : (id+1)*part]; len(w) >= 8 && atomic.LoadUint32(cancel) == 0; w = w[8:] {
					a, b, c, d = a+w[0]+w[4], b+w[1]+w[5], c+w[2]+w[6], d+w[3]+w[7]
				}
				sink.Add(a + b + c + d)
			})
		}
		wg.Wait()
		best = max(best, float64(part*e.threads*8)/time.Since(began).Seconds())
	}
	return best, nil
}
