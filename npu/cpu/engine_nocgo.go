//go:build !cgo || windows || !(amd64 || arm64)

package cpu

import (
	"fmt"
	"slices"

	"github.com/npukit/npukit/npu/cpu/internal/gokernel"
)

// openNative opens the Go engine if no kernels are named, and returns an error otherwise.
func openNative(kernels string, threads int) (engine, error) {
	switch {
	case kernels == "":
		return gokernel.New(threads), nil
	case !slices.Contains(KernelNames(), kernels):
		return nil, errUnknownKernels(kernels)
	}
	return nil, fmt.Errorf("npu/cpu: this binary has no kernels %q: they are written in C for POSIX "+
		"systems and need CGO_ENABLED=1 when it is built, on amd64 or arm64", kernels)
}
