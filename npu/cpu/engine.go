package cpu

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/npukit/npukit/npu/cpu/internal/gokernel"
	"github.com/npukit/npukit/npu/cpu/internal/kernel"
)

// engine executes commands. Calls of Run must not overlap.
type engine interface {
	Name() string
	// Run executes commands and reports whether *cancel became non-zero before the end.
	Run(cmds []kernel.Command, cancel *uint32, trace bool) (cancelled bool, err error)
	// Select returns the kernel that computes a product.
	Select(kernel.Product) kernel.Choice
	// AttentionTable returns the table of attention to keys and values of types k and v with results
	// of type y and heads of hd elements.
	AttentionTable(k, v, y int32, hd int64) int32
	// PackBytes returns the size of a Pack command's output in bytes.
	PackBytes(*kernel.Command) int64
	// AttentionBytes returns the size of the scratch memory of an Attention command.
	AttentionBytes(*kernel.Command) int64
	// Regroup fills groups first to last-1 of a weight from the matrix in the order of its file. Calls
	// may overlap each other and those of Run.
	Regroup(w *kernel.Grouped, data []byte, first, last int)
	// Peak returns the floating-point operations per second of all threads in products of BF16 with
	// BF16 from the L1 cache, the best of several rounds of at least that length.
	Peak(length time.Duration, rounds int) (float64, error)
	// ReadBandwidth returns the bytes per second at which all threads read mem. Results has room for a
	// float32 per MiB of it.
	ReadBandwidth(mem, results []byte, cancel *uint32) (float64, error)
	Close()
}

// bf12Engine is an engine with kernels that read BF12.
type bf12Engine interface {
	// BF12Code returns the layout of BF12 that the kernels read.
	BF12Code() int32
	// UseBF12 prepares the engine for weights in BF12, before there are any. It reports whether the
	// kernels are faster with them; if not, nothing changes.
	UseBF12() bool
	// ToBF12 fills blocks first to last-1 of a weight from the matrix in the order of its file. It
	// returns their escapes, which the headers index, and false if there are too many. Calls may
	// overlap.
	ToBF12(w *kernel.BF12, data []byte, first, last int) ([]uint32, bool)
}

// KernelsVariable is the environment variable that limits the kernels of every device of the process.
const KernelsVariable = "NPUKIT_KERNELS"

// openEngine makes the engine that the options and the environment ask for.
func openEngine(kernels string, threads int) (engine, error) {
	kernels, err := limitKernels(kernels, os.Getenv(KernelsVariable))
	if err != nil {
		return nil, err
	}
	if kernels == "go" {
		return gokernel.New(threads), nil
	}
	return openNative(kernels, threads)
}

// limitKernels returns the kernels to open if [KernelsVariable] has the value limit: those of the
// limit by default, and an error for any above it in the order of KernelNames.
func limitKernels(kernels, limit string) (string, error) {
	if limit == "" {
		return kernels, nil
	}
	names := KernelNames()
	most := slices.Index(names, limit)
	if most < 0 {
		return "", fmt.Errorf("npu/cpu: %s: unknown kernels %q, want one of %s, or unset it",
			KernelsVariable, limit, strings.Join(names, ", "))
	}
	if kernels == "" {
		return limit, nil
	}
	if slices.Index(names, kernels) > most {
		return "", fmt.Errorf("npu/cpu: kernels %q are above the limit %s=%s: unset it, or ask for one of %s",
			kernels, KernelsVariable, limit, strings.Join(names[:most+1], ", "))
	}
	return kernels, nil
}

// KernelNames returns the values of Options.Kernels in ascending order: each needs at least the
// instructions of those before it for the same architecture. Open returns an error for kernels that
// this machine or this binary cannot execute.
func KernelNames() []string {
	return []string{"go", "generic", "armbf16", "avx2", "avx512", "vnni", "avx512bf16", "amx"}
}

func errUnknownKernels(kernels string) error {
	return fmt.Errorf("npu/cpu: unknown kernels %q, want one of %s, or nothing to choose by timing",
		kernels, strings.Join(KernelNames(), ", "))
}

// roundsQuantized reports whether products of many rows of BF16 round quantized weights to BF16.
func roundsQuantized(e engine) bool {
	p := kernel.Product{A: kernel.BF16, W: kernel.Q8_0, M: 1 << 20, K: 256, Transposed: true}
	return e.Select(p).Rounding == kernel.RoundsWeights
}

// fewRows returns the most rows for which products of BF16 with some type of weights are GEMVs.
func fewRows(e engine) (rows int) {
	gemv := func(m int, w int32) bool {
		p := kernel.Product{A: kernel.BF16, W: w, M: int64(m), K: 256, Transposed: true}
		return e.Select(p).Kind == kernel.GEMV
	}
	for gemv(rows+1, kernel.BF16) || gemv(rows+1, kernel.Q8_0) {
		rows++
	}
	return rows
}
