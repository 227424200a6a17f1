package checkpoint_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/npu/dtype"
)

func ExampleOpen() {
	c, err := checkpoint.Open("../../testdata/tiny-models/qwen3-qknorm", nil) // a folder, or a .gguf file
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	config := c.Config()
	fmt.Println(config.Family, config.Layers, "layers,", c.Parameters(), "parameters of", config.DType)

	w, err := c.Tensor("model.layers.0.self_attn.q_proj.weight")
	if err != nil {
		log.Fatal(err)
	}
	row := make([]float32, w.Shape[1])
	if err := dtype.Dequantize(row, w.Type, w.Row(0)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(w.Shape, w.Type, row[0])

	_, err = c.Tensor("lm_head.weight")
	var e *checkpoint.Error
	if errors.As(err, &e) {
		fmt.Println(e.Tensor, e.Problem)
	}
	// Output:
	// qwen3 3 layers, 203392 parameters of BF16
	// [128 64] BF16 -0.1484375
	// lm_head.weight is not in this model: its LM head is model.embed_tokens.weight (tied embeddings)
}
