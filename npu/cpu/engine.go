package cpu

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// engine executes command lists. Calls of run do not overlap.
type engine interface {
	name() string
	// run executes the commands and reports whether *cancel became non-zero before the end.
	run(cmds []command, cancel *uint32, trace bool) (cancelled bool, err error)
	// regroup fills groups first to last-1 of a weight from its rows as they lie in a file. Unlike those of run, calls may overlap.
	regroup(w *groupedWeight, rows []byte, first, last int)
	// gemvRows is the most rows for which a product of a type with a transposed matrix of a type is a kindGEMV command instead of kindPack and
	// kindGEMM.
	gemvRows(a, w int32) int64
	// multipliesFew says how products of at most gemvRows rows are made of activations and weights of these types: the flags of their commands.
	multipliesFew(a, w int32) int32
	// multiplies says the same of products of more rows.
	multiplies(a, w int32, transposed bool) int32
	// rounds reports whether products of BF16 with more rows than gemvRows round quantised weights to BF16.
	rounds() bool
	// inPlaceRows is the most rows for which products with weights of this type and these flags are kindInPlace commands instead of kindGEMM; 0 when they never are.
	inPlaceRows(w, flags int32) int64
	// packBytes is the size of a kindPack command's destination.
	packBytes(m, k int64, flags int32) int64
	// attends says how attention to keys and values of these types, with results of a type and so many dims a head, is made: the flags of its command.
	attends(k, v, y int32, hd int64) int32
	// attentionBytes is the scratch that an attention command needs.
	attentionBytes(c *command) int64
	// peak is the arithmetic of all threads at their best, for products of BF16 with BF16, in floating-point operations per second; each of
	// several rounds takes at least so long.
	peak(length time.Duration, rounds int) (float64, error)
	// readBandwidth reads a meter's memory with all threads, a few times: the most bytes in a second.
	readBandwidth(m memory, cancel *uint32) (float64, error)
	close()
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
		return newGoEngine(threads), nil
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
	return fmt.Errorf("npu/cpu: unknown kernels %q, want one of %s, or nothing to choose by timing", kernels, strings.Join(KernelNames(), ", "))
}
