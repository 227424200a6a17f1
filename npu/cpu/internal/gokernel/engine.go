// Package gokernel executes commands with kernels in pure Go. It serves builds without cgo and the
// systems that have no C kernels, and it is a second implementation to test those against.
package gokernel

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/npukit/npukit/npu/cpu/internal/kernel"
)

// Engine executes commands with goroutines and kernels in Go.
type Engine struct {
	threads int
	workers []worker
}

// worker is one thread's scratch memory.
type worker struct {
	weights  []float32 // rows of weights, keys or values in FP32
	rows     [3][]float32
	scores   []float32
	fixed    []fixedBlock // activations of the command fixedFor, row after row
	fixedFor *kernel.Command
	cancel   *uint32
}

// cancelled reports whether the run was cancelled. Long chunks check it.
func (w *worker) cancelled() bool { return atomic.LoadUint32(w.cancel) != 0 }

// New returns an engine that computes with so many goroutines.
func New(threads int) *Engine {
	return &Engine{threads: threads, workers: make([]worker, threads)}
}

// Name returns "go".
func (e *Engine) Name() string { return "go" }

// Select returns GEMV for a few rows of BF16 activations times quantized weights, and GEMM
// otherwise.
func (e *Engine) Select(p kernel.Product) kernel.Choice {
	if p.Transposed && p.A == kernel.BF16 && kernel.IsGrouped(p.W) && p.M <= gemvRows {
		return kernel.Choice{Kind: kernel.GEMV, Rounding: kernel.RoundsActivations}
	}
	return kernel.Choice{Kind: kernel.GEMM}
}

// AttentionTable returns 0: there is one attention kernel.
func (e *Engine) AttentionTable(_, _, _ int32, _ int64) int32 { return 0 }

// PackBytes returns the size of packed activations.
func (e *Engine) PackBytes(c *kernel.Command) int64 { return c.M * c.K * 4 }

// AttentionBytes returns 0: attention needs no scratch memory.
func (e *Engine) AttentionBytes(*kernel.Command) int64 { return 0 }

// Close does nothing.
func (e *Engine) Close() {}

// kernelFunc is the kernel of one kind of command: its number of chunks, and the function that runs
// one. Chunks are independent of each other.
type kernelFunc struct {
	chunks func(c *kernel.Command) int64
	do     func(w *worker, c *kernel.Command, chunk int64)
}

var kernels = [...]kernelFunc{
	kernel.Pack:      {rowChunks, (*worker).pack},
	kernel.GEMM:      {gemmChunks, (*worker).gemm},
	kernel.GEMV:      {gemvChunks, (*worker).gemv},
	kernel.Embed:     {rowChunks, (*worker).embed},
	kernel.RMSNorm:   {rowChunks, (*worker).rmsNorm},
	kernel.LayerNorm: {rowChunks, (*worker).layerNorm},
	kernel.RoPE:      {rowChunks, (*worker).rope},
	kernel.KVWrite:   {func(c *kernel.Command) int64 { return c.NSegs }, (*worker).kvWrite},
	kernel.Attention: {attentionChunks, (*worker).attention},
	kernel.SiLUMul:   {rowChunks, (*worker).siluMul},
	kernel.GELU:      {rowChunks, (*worker).gelu},
	kernel.Add:       {rowChunks, (*worker).add},
	kernel.Copy:      {copyChunks, (*worker).copy},
}

// Run executes commands with all threads at once and reports whether *cancel became non-zero before
// the end.
func (e *Engine) Run(cmds []kernel.Command, cancel *uint32, trace bool) (bool, error) {
	b := newBarrier(e.threads)
	began := time.Now()
	walk := func(id int) {
		w := &e.workers[id]
		w.cancel, w.fixedFor = cancel, nil
		for i := range cmds {
			c := &cmds[i]
			if c.Barrier != 0 {
				b.wait()
			}
			if trace && id == 0 {
				c.Start = int64(time.Since(began))
			}
			k := &kernels[c.Kind]
			for n := k.chunks(c); atomic.LoadUint32(cancel) == 0; {
				j := atomic.AddInt64(&c.Next[0], 1) - 1
				if j >= n {
					break
				}
				k.do(w, c, j)
			}
			if trace {
				if i+1 == len(cmds) || cmds[i+1].Barrier != 0 {
					b.wait()
				}
				if id == 0 {
					c.End = int64(time.Since(began))
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

// barrier lets goroutines wait for each other repeatedly. A waiting goroutine polls a few times,
// since the others mostly arrive soon, and then sleeps: on a machine with other load the one it
// waits for may have no processor.
type barrier struct {
	threads int64
	arrived atomic.Int64
	round   atomic.Int64
	mu      sync.Mutex
	next    *sync.Cond // signaled when a round ends
}

// barrierLooks is how often a goroutine polls before it sleeps: a few tenths of a millisecond.
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

// rowsOf returns the range of rows of a chunk of a row-wise command.
func rowsOf(c *kernel.Command, chunk int64) (from, to int64) {
	step := rowStep(c)
	return chunk * step, min(c.M, (chunk+1)*step)
}

func rowStep(c *kernel.Command) int64 { return max(1, chunkElements/(max(1, c.N)*max(1, c.K))) }

func rowChunks(c *kernel.Command) int64 { return (c.M + rowStep(c) - 1) / rowStep(c) }

// grow returns n elements of undefined content.
func grow(s *[]float32, n int64) []float32 {
	if int64(len(*s)) < n {
		*s = make([]float32, n)
	}
	return (*s)[:n]
}

// Peak multiplies small matrices from the L1 cache.
func (e *Engine) Peak(length time.Duration, rounds int) (float64, error) {
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

func (e *Engine) ReadBandwidth(mem, _ []byte, cancel *uint32) (float64, error) {
	words := unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/8)
	best := 0.0
	var sink atomic.Uint64
	for range 2 {
		began := time.Now()
		var wg sync.WaitGroup
		part := len(words) / e.threads
		for id := range e.threads {
			wg.Go(func() {
				var a, b, c, d uint64
				w := words[id*part : (id+1)*part]
				for ; len(w) >= 8 && atomic.LoadUint32(cancel) == 0; w = w[8:] {
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
