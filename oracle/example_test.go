package oracle_test

import (
	"context"
	"fmt"
	"log"
	"math"
	"path/filepath"

	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/oracle"
)

// The expected output of a kernel.
func ExampleCompute() {
	o := op.RMSNorm{Rows: op.Rows, Width: 2, Eps: 0}
	x := []float32{1, 7, 30, 40} // [2 2]
	w := []float32{5, 5}         // [2]
	want, err := oracle.Compute(context.Background(), o, op.Size{Rows: 2}, x, w)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.4f\n", want)
	// Output: [1.0000 7.0000 4.2426 5.6569]
}

// A prompt in one pass, then single steps. The tap prints the size of the residual stream after
// each layer of the first pass.
func ExampleModel_Forward() {
	ck, err := checkpoint.Open(filepath.Join(testenv.Root(), "testdata", "tiny-models", "smollm-mha"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer ck.Close()
	m, err := oracle.Open(ck)
	if err != nil {
		log.Fatal(err)
	}
	size := func(name string, shape []int, values []float32) error {
		if ok, err := filepath.Match("layer.*.ffn.residual", name); err != nil || !ok {
			return err
		}
		squares := 0.0
		for _, v := range values {
			squares += float64(v) * float64(v)
		}
		fmt.Printf("%s %v: root mean square %.2f\n", name, shape, math.Sqrt(squares/float64(len(values))))
		return nil
	}
	ctx, st := context.Background(), m.NewState()
	var best int32
	pick := func(pos int, logits []float32) error {
		for id, v := range logits {
			if v > logits[best] {
				best = int32(id)
			}
		}
		fmt.Printf("after position %d: token %d\n", pos, best)
		return nil
	}
	prompt := []int32{1, 17, 42, 99}
	if err := m.Forward(ctx, st, prompt, &oracle.ForwardOptions{Picks: []int{3}, Tap: size}, pick); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		if err := m.Forward(ctx, st, []int32{best}, nil, pick); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// layer.0.ffn.residual [4 64]: root mean square 2.21
	// layer.1.ffn.residual [4 64]: root mean square 3.17
	// after position 3: token 20
	// after position 4: token 20
	// after position 5: token 20
}
