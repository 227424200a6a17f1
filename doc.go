// Package npukit runs large language models on spatial NPUs (AMD XDNA 2), and on any CPU, from Go.
//
// This package holds no code. It is the tour.
//
//	package main
//
//	import (
//		"context"
//		"fmt"
//		"log"
//
//		"github.com/npukit/npukit/model"
//		"github.com/npukit/npukit/npu/cpu"
//	)
//
//	func main() {
//		ctx := context.Background()
//		dev, err := cpu.Open(nil)
//		if err != nil {
//			log.Fatal(err)
//		}
//		defer dev.Close()
//		m, err := model.Open(ctx, dev, "SmolLM2-135M-Instruct", nil) // a Hugging Face folder or a .gguf file
//		if err != nil {
//			log.Fatal(err)
//		}
//		defer m.Close()
//		for tok, err := range m.Generate(ctx, model.Text("Once upon a time"), &model.GenerateOptions{MaxTokens: 64}) {
//			if err != nil {
//				log.Fatal(err)
//			}
//			fmt.Print(tok.Text)
//		}
//	}
//
// # Map of the packages
//
//   - model opens checkpoints and generates text. Start here.
//   - model/plan turns a checkpoint's configuration into programs for a device, and estimates them.
//   - model/checkpoint, model/tokenizer and model/chat read weights, vocabulary and chat template.
//   - npu has the work of devices: ops merged into programs, buffers, runs.
//   - npu/op and npu/dtype define each op's mathematics and shapes, and the element types.
//   - npu/cpu is the software device: SIMD kernels in C, or pure Go without cgo.
//   - npu/xdna2 describes the NPU, npu/sim is a virtual one with its numbers, limits and clock, and
//     npu/xdna is the real one through package xrt.
//   - oracle computes the same in plain FP32 and shares no code with devices; gate compares the two
//     and returns a verdict.
//   - gate/gatetest tests a kernel or a whole device in one line; gate/golden reads stored outputs of
//     other implementations.
//   - skill takes a checkpoint through gated phases to a verified and tuned plan; skill/mcp lets
//     agents drive that.
//   - cmd/npukit is the command, and examples has programs to copy.
//
// ARCHITECTURE.md draws the arrows between them.
package npukit
