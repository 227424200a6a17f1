//go:build cgo && !windows && (amd64 || arm64)

package cpu

import (
	"slices"

	"github.com/npukit/npukit/npu/cpu/internal/ckernel"
)

// openNative opens the C engine with the named kernels, or with the fastest.
func openNative(kernels string, threads int) (engine, error) {
	if kernels != "" && !slices.Contains(KernelNames(), kernels) {
		return nil, errUnknownKernels(kernels)
	}
	return ckernel.Open(kernels, threads)
}
