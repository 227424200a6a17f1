//go:build emulatedamx && cgo && linux && amd64

package amx

// With the tag emulatedamx the kernels of AMX run on a matrix unit in C, slowly, wherever there is AVX-512 with BF16: for tests on machines without AMX.

// #cgo CFLAGS: -DNPK_EMULATED_TILES
import "C"
