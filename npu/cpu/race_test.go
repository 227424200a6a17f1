//go:build race

package cpu

// raced says that the race detector watches. It makes Go code many times slower and sees nothing of
// what C does, so tests of numbers run on fewer kernels
// and types then; they say in the log what they leave out.
const raced = true
