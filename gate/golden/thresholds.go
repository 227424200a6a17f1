package golden

import "github.com/npukit/npukit/gate"

// OracleThresholds returns the bounds of the oracle for a golden sequence. Both compute in FP32 or
// better, so most of the difference comes from the precision of the stored values.
func OracleThresholds(s *Sequence) gate.Thresholds {
	t := gate.Thresholds{
		Format: "oracle", KLMean: 1e-8, KLP90: 1e-8, KLMax: 1e-7, Top1: 0.999, Tie: 0.01, NLL: 1e-5,
		Note: "the oracle against Hugging Face in float64 on five tiny models: KL mean at most 2e-12, NLL " +
			"within 1e-8; wider because a golden file may be made in float32 and from a deeper model",
	}
	if s.Logits == nil {
		t.KLMean, t.KLP90, t.KLMax, t.NLL = 1e-5, 1e-5, 1e-4, 1e-4
		t.Note = "the oracle against Hugging Face in float32 on SmolLM2-135M, stored with five digits, " +
			"which alone cause a KL of about 1e-6: KL mean at most 3e-7, NLL within 1e-5; wider because " +
			"other models are deeper"
	}
	return t
}
