// Package gate decides whether numbers are right.
//
// A gate compares the output of a device with a reference and returns a report: every metric, the
// worst elements and rows, and a verdict with its reasons in words.
//
//	tol, _ := gate.Published(op.RMSNorm{Rows: 64, Width: 2048, Eps: 1e-5})
//	rep, err := gate.Check(got, want, 2048, tol)
//	if err != nil { ... }             // an InputError: lengths differ, the tolerance is not valid
//	if !rep.OK() { fmt.Println(rep) } // the reasons, the metrics, where it is worst
//
// # Verdicts
//
// A verdict always depends on the size of the errors. Correlation and cosine alone cannot pass
// anything, because an output that is twice too large scores 1.0 on both. So the zero [Tolerance]
// requires equality, a tolerance without an element-wise bound needs another bound on the size of
// errors, and a bound so wide that zeros would pass makes the verdict a failure.
//
// Two bounds are scale-free: mean relative L1 and peak error (see [Metrics]). Both are 1 or more
// for an output of zeros and for a doubled one. Fill outputs with NaN before a run: an element that
// the device does not write is then NaN, and NaN never passes.
//
// # Tolerances
//
// Every [Tolerance] has a Note that states where its numbers came from; it is refused without one.
// [Published] has the bounds of the NPU's kernel registry, [CPU] those measured on this module's
// software device, [Paper] the three conditions of the paper.
//
// # Models
//
// [Teacher] runs two scorers ([Scorer]) over the same ids, position by position: KL divergence,
// top-1 agreement, likelihood. [Greedy] compares generation, and [Determinism] looks for stale
// data. Thresholds are per number format, see [FormatThresholds].
//
// # Localization
//
// A [Trace] compares every layer's output with the reference. A [Recording] also feeds the device's
// own outputs to the reference, op by op, so that [Diagnose] can name the ops that are wrong and
// the usual cause of such a pattern. Neither has a verdict.
//
// The example named Adversaries prints the faults that each gate catches, and the tests check it.
package gate
