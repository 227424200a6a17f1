// Package gatetest tests kernels and devices against the oracle.
//
// A kernel author has one question: is it right? One line answers it, for every element of the result:
//
//	gatetest.Kernel(t, dev, op.RMSNorm{Rows: 64, Width: 2048, Eps: 1e-5}, gate.Published)
//
// [CheckKernel] is the same without a test around it: it returns a [gate.Report], so that commands can run it too.
package gatetest
