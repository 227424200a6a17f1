// Package npu defines programs, buffers, runs, and the devices that execute them.
//
// A spatial NPU executes dispatches, and each has about a tenth of a millisecond of overhead. So
// kernels are merged: a [Program] is a list of launches over shared arguments, compiled into one
// dispatch. Each argument has a [Kind], from which a runtime derives every transfer.
//
//	p := npu.NewProgram("gate")
//	x := p.In("x", dtype.BF16, 64, 2048)
//	w := p.Const("w", dtype.BF16, 8192, 2048)
//	y := p.Out("y", dtype.BF16, 64, 8192)
//	p.Launch("ffn.gate", op.MatMul{M: 64, K: 2048, N: 8192, TransB: true}, x, w, y)
//	if err := p.Err(); err != nil { ... }    // shapes, types, kinds, use before definition
//
// A [Device] loads programs, owns buffers and executes runs. A [Run] is a loaded program with a
// buffer per argument, and the segments that its rows belong to: one segment per session, so
// batched decode has many. Submit executes runs in order; a software device executes the whole list
// in one call, the NPU one dispatch at a time.
//
// This package knows nothing of models: package model plans programs for a checkpoint and runs
// them.
package npu
