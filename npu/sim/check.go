package sim

import (
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/xdna2"
)

// check reports a program that the array could not run, with an [*xdna2.ResourceError].
func check(p *npu.Program) error { return xdna2.Check(p, xdna2.NPU2()) }
