// Package journal has the records of a deployment. A journal is an append-only file of records,
// each sealed with the hash of the record before. Its records add up to a [State], from which
// everything else in a workspace is derived. A [Log] is a journal with its state.
package journal
