package sim

import (
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/xdna2"
)

// check returns an [*xdna2.ResourceError] if the array cannot run p.
func check(p *npu.Program) error { return xdna2.Check(p, xdna2.NPU2()) }
