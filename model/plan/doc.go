// Package plan maps a checkpoint onto the programs of a device.
//
// A [Plan] lists the programs, the steps that dispatch them for prefill and for decode, and where
// the bytes of each argument come from. [New] makes one for a device; [NewNPU] makes one for an
// XDNA 2 array and needs no weights, only the model's configuration. A plan is written as JSON and
// read with [Read], so it can be edited; [Diff] lists the changes between two plans, and
// [Plan.Estimate] predicts how long one takes on the NPU. Package model runs plans.
package plan
