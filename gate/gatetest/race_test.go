//go:build race

package gatetest_test

// raced says that the race detector watches, which makes Go code many times slower and sees nothing
// of what C does: the suite then takes a share of the cases, and says so.
const raced = true
