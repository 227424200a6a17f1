//go:build race

package defect_test

// raced reports whether the race detector is on: slow tests then run on fewer engines and types.
const raced = true
