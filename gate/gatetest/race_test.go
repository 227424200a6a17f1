//go:build race

package gatetest_test

// raced reports whether the race detector is on. It makes Go code many times slower and does not
// see C code, so the suite then runs a share of the cases.
const raced = true
