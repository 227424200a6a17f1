//go:build race

package defect_test

// raced says that the race detector watches: what takes long then runs on fewer engines and types.
const raced = true
