//go:build race

package cpu

// raced reports whether the race detector is enabled. It makes Go code many times slower and does
// not see C code, so numeric tests then cover fewer kernels and types, and log the skipped ones.
const raced = true
