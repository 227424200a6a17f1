// Package oracle is the reference implementation: it computes every op of package op, and the whole
// forward pass of the supported model families, in FP32 and pure Go.
//
// It shares no arithmetic with any device or with package model. It uses gonum's BLAS for matrix
// products and has its own softmax and its own RoPE frequencies. If a device and the oracle agree,
// two independent programs agree.
//
// # One op
//
// [Compute] runs one op on operands in the order in which package op lists them, and returns the
// op's output:
//
//	o := op.RMSNorm{Rows: op.Rows, Width: 2048, Eps: 1e-5}
//	want, err := oracle.Compute(ctx, o, op.Size{Rows: 3}, x, w)     // x [3 2048], w [2048]; want [3 2048]
//
// # A model
//
//	ck, err := checkpoint.Open("SmolLM2-135M-Instruct", nil)
//	m, err := oracle.Open(ck)
//	st := m.NewState()                                               // an empty KV cache
//	err = st.Score(ctx, ids, func(pos int, logits []float32) error { ... })
//
// [Model.Forward] continues a state from its position. It serves prompts, teacher forcing and
// single steps; [State.Score] and [State.Step] are its most common uses. [ForwardOptions.Tap] receives the
// output of every op under the name of the corresponding launch on a device. Use it to find the
// first wrong op of a device.
//
// # Formulas
//
// A decoder of L layers computes logits from ids, row by row ([Model.Forward] is these lines in
// Go):
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
// Activations are FP32, and matrix products accumulate FP32 in blocks. Norms, activation functions
// and softmax use float64 and round once. Weights of every type are dequantized to FP32 a block of
// rows at a time, so a model needs little more memory than its file. RoPE angles are FP32 on
// purpose, because the models were trained with FP32 angles.
//
// Against Hugging Face's implementation in float64, the mean relative L1 error of logits and of
// every hidden state is below 5e-6 on all families. Tests enforce this.
//
// # Speed
//
// The oracle uses GOMAXPROCS goroutines. Scoring 1024 tokens with SmolLM2-135M takes about 15
// seconds on two cores of a Xeon, a single step about 0.13 seconds. That is fast enough for a
// reference, but it does not replace a device. Calls return within 100 ms if their context is
// cancelled.
package oracle
