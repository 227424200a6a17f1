//go:build !race

package chat

// raced reports whether the race detector is on.
const raced = false
