// Package gatetest tests kernels and devices against the oracle.
//
// A kernel author has one question: is it right? One line answers it, for every element of the result:
//
//	gatetest.Kernel(t, dev, op.RMSNorm{Rows: 64, Width: 2048, Eps: 1e-5}, gate.Published)
//
// The author of a device has the same question for everything at once:
//
//	gatetest.Conformance(t, dev, nil)
//
// Both are thin helpers around functions that know nothing of tests and return a report, [CheckKernel] and [CheckConformance], so that commands can run them
// too.
//
// # What a kernel goes through
//
// A program of one launch is made of the op. Operands are seeded, distributed as the harness of the NPU's kernel registry has them, and rounded to their types
// before the oracle sees them, weights also to what the device says that it makes of them ([npu.Info.Held], [npu.Info.Rounded]): what is compared is arithmetic,
// not storage. The device runs twice, on two sets of activations, and the second result counts.
// Before each run the result is filled with NaN and synced to the device; so are the positions of a cache that lie in the rows' future. Bytes behind the
// result must stay as they were. Buffers are synced both ways, so that a device with memory of its own is tested like any other. Every element is compared and
// judged by a tolerance with a note of where it came from; nobody's time is looked at. That is [TimeKernel]'s business, in other runs.
//
// # What a device need not be able to do
//
// A device may refuse a program, with an error from Load that says why. A conformance suite lists what was refused and counts it as a failure, unless the
// caller expects it: [ConformanceOptions.MayRefuse]. A device that refuses everything has shown nothing, and fails.
//
// # Are the gates any good?
//
// [Adversaries] is a table of devices that are right but for one thing, which broken kernels really get wrong: stale data, one row swapped, positions off by one.
// [CheckAdversaries] and [CheckModelAdversaries] prove of a device that its gates catch them, each by the metric meant for it. docs/gates.md has the
// table of what catches what.
package gatetest
