// Package gate decides whether numbers are right.
//
// A gate compares what a device computed with what it should have computed and returns a report: every metric, the worst elements and rows,
// and a verdict with its reasons in words.
//
//	tol, _ := gate.Published(op.RMSNorm{Rows: 64, Width: 2048, Eps: 1e-5})
//	rep, err := gate.CheckRows(got, want, 2048, tol)
//	if err != nil { ... }             // lengths differ, or the reference or the tolerance is no use
//	if !rep.OK() { fmt.Println(rep) } // the reasons, the metrics, where it is worst
//
// # What a verdict rests on
//
// On the size of the errors, always. Correlation and cosine cannot pass anything alone: an output that is uniformly twice too large scores
// 1.0 on both. This is not a matter of discipline here. The zero [Tolerance] asks for equality, a tolerance that lets the element-wise bound
// go must have another bound on the size of errors, and when a bound turns out to be so wide that an output of zeros would have passed, the
// verdict is a failure that says so: nothing was proved.
//
// Two bounds are scale-free, mean relative L1 and peak error (see [Metrics]), and both are 1 or more for an output of zeros and for one that
// is doubled, so that any useful bound catches both. Poison outputs before a run: silence then is NaN, and NaN never passes.
//
// # Where tolerances come from
//
// Every [Tolerance] has a Note that says where its numbers came from, and is refused without one. [Published] has what the kernel registry of
// the NPU publishes, [CPU] what was measured of this module's software device, [Paper] the three conditions of the paper.
//
// # Models
//
// [Teacher] runs two scorers ([Scorer]) over the same ids, position by position: KL divergence, agreement of first choices, likelihood. [Greedy] compares
// generation, [Determinism] looks for stale data, and a [Trace] of every layer's output points at the place that is wrong; it localises, and
// gives no verdict. Thresholds for models are per number format ([FormatThresholds]).
//
// # Where it is wrong
//
// A [Recording] takes every output of a device and compares each with what a reference makes of the device's own inputs. [Diagnose] names the ops
// that are wrong and says what usually causes the pattern. It, too, gives no verdict: that is for the gates.
//
// What each gate catches is printed by the example named Adversaries, and held there by the tests.
package gate
