package gate_test

import (
	"fmt"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/npu/op"
)

// An output that is uniformly doubled correlates perfectly with the reference, and fails.
func ExampleCheck() {
	want := []float32{1, -2, 3, -4, 5, -6}
	got := []float32{2, -4, 6, -8, 10, -12}
	tol, ok := gate.Published(op.RMSNorm{Rows: 2, Width: 3, Eps: 1e-5})
	if !ok {
		return
	}
	rep, err := gate.Check(got, want, 3, tol)
	if err != nil { // lengths differ, or the reference or the tolerance is no use
		fmt.Println(err)
		return
	}
	fmt.Println("OK:", rep.OK())
	fmt.Printf("Pearson: %.4f, cosine: %.4f\n", rep.Metrics.Pearson, rep.Metrics.Cosine)
	for _, reason := range rep.Reasons {
		fmt.Println(reason.Text)
	}
	// Output:
	// OK: false
	// Pearson: 1.0000, cosine: 1.0000
	// 6 of 6 elements (100 %) are outside |got-want| <= 0.05 + 0.016*|want|, at most 0 % may be
	// mean relative L1 is 1, want at most 0.0092
}
