// Package robustfit fits positive parameters to measurements with outliers: least squares of
// logarithms under a soft L1 norm, with a weak pull towards a prior.
package robustfit

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

const (
	// softScale is the log error beyond which a residual pulls with constant force, so that
	// outliers do not bend the fit. It is the run-to-run noise of 3 to 5 % published for XDNA 2
	// kernels.
	softScale = 0.03

	// priorForce is the error that one e-fold away from the prior counts as. It is just enough to
	// determine parameters that the data leaves open.
	priorForce = 0.05
)

// soft returns the soft L1 norm of a residual, quadratic at first and linear beyond softScale, and
// the weight for its derivative.
func soft(r float64) (value, weight float64) {
	root := math.Sqrt(1 + r*r/(softScale*softScale))
	return 2 * softScale * softScale * (root - 1), 1 / root
}

// Minimize sets params to the values that minimize the soft norm of n residuals plus the squared
// distance from the prior, in the logarithms of params. The values of params on entry are the
// prior. Residuals must write the n logarithms of predicted over measured values to dst.
//
// Method: Levenberg-Marquardt with reweighting. Source: Nocedal and Wright, Numerical Optimization,
// 2nd ed., 10.3.
func Minimize(params []*float64, n int, residuals func(dst []float64)) {
	p := len(params)
	prior, x := make([]float64, p), make([]float64, p)
	for i, v := range params {
		prior[i] = math.Log(*v)
		x[i] = prior[i]
	}
	// eval sets the parameters and returns the residuals, data first and then prior, and their
	// norm.
	eval := func(x []float64) (r []float64, norm float64) {
		r = make([]float64, n+p)
		for i, v := range params {
			*v = math.Exp(x[i])
			r[n+i] = priorForce * (x[i] - prior[i])
			norm += r[n+i] * r[n+i]
		}
		residuals(r[:n])
		for _, e := range r[:n] {
			value, _ := soft(e)
			norm += value
		}
		return r, norm
	}
	r, best := eval(x)
	damping := 1e-3
	for range 400 {
		grad, hess := normalEquations(x, r, n, func(x []float64) []float64 { r, _ := eval(x); return r })
		before := best
		for tries := 0; tries < 12 && best == before; tries++ {
			damped := mat.NewSymDense(p, nil)
			damped.CopySym(hess)
			for a := range p {
				damped.SetSym(a, a, hess.At(a, a)*(1+damping)+1e-12)
			}
			var chol mat.Cholesky
			var delta mat.VecDense
			if chol.Factorize(damped) && chol.SolveVecTo(&delta, grad) == nil {
				y := make([]float64, p)
				for i := range y {
					y[i] = x[i] - max(-1, min(1, delta.AtVec(i)))
				}
				if next, norm := eval(y); norm < best {
					x, r, best = y, next, norm
					damping = max(damping/16, 1e-9) // the increase below takes back a factor of 4
				}
			}
			damping *= 4
		}
		if before-best <= 1e-12*before {
			break
		}
	}
	eval(x)
}

// normalEquations returns the gradient and the Gauss-Newton matrix of the norm at x, where the
// residuals are r and the first n are soft.
func normalEquations(x, r []float64, n int, eval func([]float64) []float64) (*mat.VecDense, *mat.SymDense) {
	const step = 1e-6
	p := len(x)
	jac := mat.NewDense(len(r), p, nil)
	for j := range x {
		y := append([]float64(nil), x...)
		y[j] += step
		for i, v := range eval(y) {
			jac.Set(i, j, (v-r[i])/step)
		}
	}
	grad, hess := mat.NewVecDense(p, nil), mat.NewSymDense(p, nil)
	for i := range r {
		weight := 1.0
		if i < n {
			_, weight = soft(r[i])
		}
		for a := range p {
			grad.SetVec(a, grad.AtVec(a)+weight*jac.At(i, a)*r[i])
			for b := a; b < p; b++ {
				hess.SetSym(a, b, hess.At(a, b)+weight*jac.At(i, a)*jac.At(i, b))
			}
		}
	}
	return grad, hess
}
