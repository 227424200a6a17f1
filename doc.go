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
//   - model opens checkpoints, plans them for a device and generates text. Start here.
//   - model/checkpoint, model/tokenizer and model/chat read what a model consists of: weights, vocabulary, chat template.
//   - npu is the language in which devices are told what to do: ops merged into programs, buffers, runs.
//   - npu/op and npu/dtype are its vocabulary: every kernel's mathematics as a shape, every element type.
//   - npu/cpu is the software device: SIMD kernels in C, or pure Go where cgo is off.
//   - npu/xdna2 is what is known of the NPU, npu/sim a virtual one with its numbers, limits and clock, npu/xdna the real one through package xrt.
//   - oracle computes the same in plain FP32, sharing nothing with devices; gate compares the two and gives a verdict.
//   - gate/gatetest tests a kernel for an op, or a whole device, with one line; gate/golden keeps what other implementations computed.
//   - skill takes a checkpoint through gated phases to a verified and tuned plan; skill/mcp lets agents drive that.
//   - cmd/npukit is the command, and examples holds programs to copy.
//
// ARCHITECTURE.md draws the arrows between them.
package npukit
