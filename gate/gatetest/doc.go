// Package gatetest tests kernels and devices against the oracle.
//
// One line tests every element of a kernel's result:
//
//	gatetest.Kernel(t, dev, op.RMSNorm{Rows: 64, Width: 2048, Eps: 1e-5}, nil)
//
// One line tests a whole device:
//
//	gatetest.Conformance(t, dev, nil)
//
// Both wrap functions that return a report and know nothing of tests, [CheckKernel] and
// [CheckConformance], for use in commands.
//
// # Method
//
// The op becomes a program of one launch. Operands are seeded, distributed as in the harness of the
// NPU's kernel registry, and rounded to their types before the oracle sees them; weights also as
// the device rounds them ([npu.Info.Held], [npu.Info.Rounded]). So the comparison is about
// arithmetic, not storage. The device runs twice, on two sets of activations, and the second result
// is judged, which finds devices that return stale data. Before each run the result is filled with
// NaN and synced to the device; so are the cache positions after the rows. Bytes after the result
// must stay unchanged. Buffers are synced both ways, for devices with memory of their own. Every
// element is compared and judged by a tolerance that states where it came from. Time is not judged;
// see [TimeKernel].
//
// # Refusals
//
// A device may refuse a program with an error from Load. A conformance suite lists the refused
// cases and counts them as failures unless the caller allows them in
// [ConformanceOptions.MayRefuse]. A device that refuses everything fails.
//
// # Adversaries
//
// [Adversaries] are devices with one fault each that real kernels have had: stale data, swapped
// rows, positions off by one. [CheckAdversaries] and [CheckModelAdversaries] prove that the gates
// catch them on a device, each by the expected metric. docs/gates.md has the table.
package gatetest
