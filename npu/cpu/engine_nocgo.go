//go:build !cgo || windows || !(amd64 || arm64)

package cpu

import (
	"fmt"
	"slices"
)

// openNative gives the Go engine when no kernels are asked for, and explains itself otherwise.
func openNative(kernels string, threads int) (engine, error) {
	switch {
	case kernels == "":
		return newGoEngine(threads), nil
	case !slices.Contains(KernelNames(), kernels):
		return nil, errUnknownKernels(kernels)
	}
	return nil, fmt.Errorf("npu/cpu: this binary has no kernels %q: they are written in C for POSIX systems and need CGO_ENABLED=1 when it is built, on amd64 or arm64", kernels)
}
