package cpu

import (
	"fmt"
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

// openEngine makes the engine that the options ask for.
func openEngine(kernels string, threads int) (engine, error) {
	if kernels == "go" {
		return newGoEngine(threads), nil
	}
	return openNative(kernels, threads)
}

// KernelNames are the values of Options.Kernels, slowest first. Open has an error for those that this machine or this binary cannot execute.
func KernelNames() []string {
	return []string{"go", "generic", "armbf16", "avx2", "avx512", "avx512bf16", "amx"}
}

func errUnknownKernels(kernels string) error {
	return fmt.Errorf("npu/cpu: unknown kernels %q, want one of %s, or nothing to choose by timing", kernels, strings.Join(KernelNames(), ", "))
}
