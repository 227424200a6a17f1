// Package defect is a catalogue of bugs that authors of kernels really make, and puts them into a
// device one at a time.
//
// Tests load a model under a context that carries one [Defect], and check that the gates refuse the
// result and that the diagnosis names the op with the bug:
//
//	dev = defect.Wrap(dev)
//	for _, d := range defect.All() {
//		m, err := model.Open(defect.With(ctx, d), dev, path, nil)
//		...
//	}
//
// A defect is expressed in one of three ways:
//
//   - a rewritten launch: the device's kernel gets a wrong parameter, a shifted or shortened
//     operand, or the memory of another argument;
//   - a replaced kernel: Go code that is wrong in one line computes the launch instead;
//   - a damaged result: the device's kernel runs, and then a part of its output is changed, as a
//     wrong tile edge would.
//
// All results stay finite and of about the right size, so that only a comparison finds the bug.
package defect
