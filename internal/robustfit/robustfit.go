// Package robustfit fits positive parameters to measurements of which some are odd: least squares in the logarithm, with a norm that single large errors do not bend,
// and a weak pull towards a prior.
package robustfit

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

const (
	// softScale is the error, as a logarithm, from which on a residual pulls with constant force only: the run-to-run noise of 3 to 5 % that is published for the kernels
	// of XDNA 2. What no formula explains then does not bend the rest.
	softScale = 0.03

	// priorForce is the error that one e-fold away from the prior counts as: enough to settle what a split's rows leave open.
	priorForce = 0.05
)

// soft is the soft L1 norm of a residual, quadratic at first and linear beyond softScale, and the weight that gives its derivative.
func soft(r float64) (value, weight float64) {
	root := math.Sqrt(1 + r*r/(softScale*softScale))
	return 2 * softScale * softScale * (root - 1), 1 / root
}

// Minimise brings the soft norm of n residuals, plus the prior's squares, to a minimum over the logarithms of params, from where they
// stand, which is the prior. Residuals are logarithms of predicted over measured values.
//
// Method: Levenberg-Marquardt with reweighting. Source: Nocedal and Wright, Numerical Optimization, 2nd ed., 10.3.
func Minimise(params []*float64, n int, residuals func(dst []float64)) {
	p := len(params)
	prior, x := make([]float64, p), make([]float64, p)
	for i, v := range params {
		prior[i] = math.Log(*v)
		x[i] = prior[i]
	}
	// eval sets the parameters and returns the residuals, those of the prior behind the rows', and their norm.
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
					damping = max(damping/16, 1e-9) // 4 of it is taken back below
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

// normalEquations are the gradient and the Gauss-Newton matrix of the norm at x, where the residuals are r and the first n are soft.
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
