// Package oracle computes what a device should have computed: every op of package op, and the whole forward pass of the supported model
// families, in FP32 and pure Go.
//
// It is written to be read and to be believed. It shares no arithmetic with any device and none with package model: it has its own
// products (gonum's BLAS), its own softmax, its own RoPE frequencies. When a device and the oracle agree, two independent programs do.
//
// # One op
//
// [Compute] takes an op and its operands in the order in which package op lists them, and gives what the op writes:
//
//	o := op.RMSNorm{Rows: op.Rows, Width: 2048, Eps: 1e-5}
//	want, err := oracle.Compute(ctx, o, op.Size{Rows: 3}, x, w)     // x [3 2048], w [2048]; want [3 2048]
//
// # A model
//
//	ck, err := checkpoint.Open("SmolLM2-135M-Instruct")
//	m, err := oracle.Open(ck)
//	st := m.NewState()                                               // an empty KV cache
//	err = st.Score(ctx, ids, func(pos int, logits []float32) error { ... })
//
// [Model.Forward] continues a state from its position, so the same call serves a prompt, teacher forcing and single steps; [State.Score]
// and [State.Step] are the two most wanted forms of it. Its [Tap] sees the output of every op under the name that a device's launch of
// it has, which is how the first wrong op of a wrong device is found.
//
// # The formula sheet
//
// A decoder of L layers turns ids into logits so, row by row ([Model.Forward] is these lines as Go):
//
//	x = E[id]                                                        embed.embed
//	for each layer:
//	    h = rmsnorm(x) w                                             attn.norm
//	    q, k, v = h Wq^T + bq, h Wk^T + bk, h Wv^T + bv              attn.q, attn.q_bias, ...   (biases: Qwen2)
//	    q, k = rmsnorm(q) wq, rmsnorm(k) wk   on each head           attn.q_norm, attn.k_norm   (Qwen3)
//	    q, k = R(pos) q, R(pos) k             on each head           attn.q_rope, attn.k_rope
//	    K, V = K with k at pos, V with v at pos                      attn.k_write, attn.v_write
//	    a = softmax(q K^T / sqrt(headDim)) V  on each head           attn.core
//	    x = x + a Wo^T                                               attn.o, attn.residual
//	    h = rmsnorm(x) w                                             ffn.norm
//	    x = x + (silu(h Wg^T) * h Wu^T) Wd^T                         ffn.gate, ffn.up, ffn.act, ffn.down, ffn.residual
//	logits = rmsnorm(x) w E'^T                                       head.pick, head.norm, head.lm_head
//
// # Precision
//
// Activations are FP32, and products are summed in FP32 in blocks. Norms and activation functions are computed in float64 and rounded
// once; so are the exponentials of softmax and their sum. Weights of every type are brought to FP32 exactly as their format says, a
// block of rows at a time, so that a model takes little more memory than its file. RoPE's angles alone are deliberately not better than
// FP32, because the models were trained with FP32 angles.
//
// Against Hugging Face's implementation in float64 the mean relative L1 error of logits and of every hidden state stays below 5e-6 on
// all families (the tests hold it there).
//
// # Speed
//
// Everything runs on GOMAXPROCS goroutines. 1024 tokens of SmolLM2-135M with the logits of every position take about 15 seconds on two
// cores of a Xeon, a single step about 0.13 seconds. That is fast enough to be the reference for real models, and nothing to be used in
// place of a device.
//
// A cancelled context is noticed within 100 ms.
package oracle
