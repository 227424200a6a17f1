// Package defect holds the bugs that authors of kernels really make, one at a time, and puts them
// into a device on purpose.
//
// A gate that nothing fails proves nothing, and a diagnosis is worth what it finds. So tests load a
// model under a context that carries one [Defect], and hold that the gates refuse the result and
// that the diagnosis names the op in which the bug sits:
//
//	for _, d := range defect.All() {
//		ctx := defect.With(ctx, d)
//		m, err := model.Open(ctx, dev, path, nil)   // npu/cpu computes with d's bug in the launches that d names
//		...
//	}
//
// The package is internal: nobody outside the module can make such a context. A device asks [From]
// once per program, when it loads it, and the answer is nil for everybody but those tests.
//
// # How a bug is expressed
//
// In one of three ways, whichever is closest to the mistake itself:
//
//   - a rewritten launch: the right kernel is given a wrong parameter, a shifted or shortened operand, or another argument's memory;
//   - a replaced kernel: a plain one in Go, wrong in one line, computes the launch instead;
//   - a damaged result: the right kernel runs, and then a part of what it wrote is spoiled, as by a wrong edge of a tile.
//
// None spoils the numbers as such: all stay finite and of about the right size, so that only a
// comparison sees anything.
package defect
