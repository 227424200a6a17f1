// Package npu is the machine's language: programs, buffers, runs and the devices that execute them.
//
// A spatial NPU is given work in dispatches, and each costs about a tenth of a millisecond before any arithmetic. So kernels are merged: a
// [Program] is a list of launches over shared arguments, compiled into one dispatch. What an argument is for is its [Kind]; from the kinds
// a runtime derives every transfer, and nobody lists them by hand.
//
//	p := npu.NewProgram("gate")
//	x := p.In("x", dtype.BF16, 64, 2048)
//	w := p.Const("w", dtype.BF16, 8192, 2048)
//	y := p.Out("y", dtype.BF16, 64, 8192)
//	p.Launch("ffn.gate", op.MatMul{M: 64, K: 2048, N: 8192, TransB: true}, x, w, y)
//	if err := p.Err(); err != nil { ... }    // shapes, types, kinds, use before definition
//
// A [Device] loads programs, owns buffers and executes runs. A [Run] is a loaded program with a buffer for every argument and the segments
// that its rows belong to: one session is one segment, batched decoding has many. Submit takes runs in order; the software device executes
// the whole list in one call, the real NPU cuts it where the hardware must.
//
// This package knows nothing of models: package model plans programs for a checkpoint and runs them.
package npu
