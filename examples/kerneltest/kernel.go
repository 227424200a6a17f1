// Package kerneltest shows how a kernel of your own is tested: a fused RMSNorm and matrix product, written as a Go function, behind a device
// that does nothing else. The test beside it is the part to copy:
//
//	go test -v ./examples/kerneltest
//
// The kernel stands for whatever you have: an assembly routine, a library, an NPU. What the test needs of it is an [npu.Device], which loads a
// program, holds buffers and runs; device.go is one in a hundred lines.
package kerneltest

import "math"

// NormMatMul is RMSNorm and the product behind it in one pass over x. The norm's scale is the same for a whole row, so that it can wait until the
// end of each sum, and its weight can be multiplied on the way:
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

// dot keeps four sums, as a vector unit would: the order differs from the reference's, and with it the last bits.
func dot(a, b []float32) float32 {
	var s [4]float32
	for len(a) >= 4 {
		for i := range s {
			s[i] += a[i] * b[i]
		}
		a, b = a[4:], b[4:]
	}
	for i, v := range a { // what is left over: the place where kernels go wrong
		s[i] += v * b[i]
	}
	return s[0] + s[1] + s[2] + s[3]
}
