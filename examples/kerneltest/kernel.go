// Package kerneltest shows how to test a kernel of your own: a fused RMSNorm and matrix product,
// written as a Go function, and a device that runs nothing else. Copy its test:
//
//	go test -v ./examples/kerneltest
//
// The kernel could as well be an assembly routine, a library or an NPU. The test needs an
// [npu.Device], which loads a program, allocates buffers and runs; device.go has one in a hundred
// lines.
package kerneltest

import "math"

// NormMatMul computes RMSNorm and a matrix product in one pass over x. The norm's scale is constant
// within a row, so it is applied after each sum, and its weight before:
//
//	dst[r,n] = sum_k x[r,k] weight[k] w[n,k] / sqrt(mean_k x[r,k]^2 + eps)
//
//	x      [rows, k]
//	weight [k]
//	w      [n, k]
//	dst    [rows, n]
func NormMatMul(dst, x, weight, w []float32, k, n int, eps float64) {
	scaled := make([]float32, k) // x of a row times weight
	for r := range len(x) / k {
		squares := 0.0
		for i, v := range x[r*k:][:k] {
			squares += float64(v) * float64(v)
			scaled[i] = v * weight[i]
		}
		scale := float32(1 / math.Sqrt(squares/float64(k)+eps))
		for j := range n {
			dst[r*n+j] = scale * dot(scaled, w[j*k:][:k])
		}
	}
}

// dot keeps four partial sums like a vector unit, so its last bits differ from the reference's.
func dot(a, b []float32) float32 {
	var s [4]float32
	for len(a) >= 4 {
		for i := range s {
			s[i] += a[i] * b[i]
		}
		a, b = a[4:], b[4:]
	}
	for i, v := range a { // the remainder, where kernels often have bugs
		s[i] += v * b[i]
	}
	return s[0] + s[1] + s[2] + s[3]
}
