//go:build race

package chat

// raced reports whether the race detector is on. It makes templates about ten times slower.
const raced = true
