//go:build emulatedamx && cgo && linux && amd64

package amx

// With the tag emulatedamx the kernels of AMX run on a matrix unit in C, slowly, on any CPU with
// AVX-512 BF16: for tests on machines without AMX.

// #cgo CFLAGS: -DNPK_EMULATED_TILES
import "C"
