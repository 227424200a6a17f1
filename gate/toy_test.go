package gate_test

import (
	"context"
	"math"
	"math/rand/v2"
)

// toy is a small transformer in float64, random but fixed, that can be broken in the ways in which
// real ones break. It shares nothing with any device or oracle.
type toy struct {
	defect string

	embed, head                    [][]float64 // [vocab][dim]
	wq, wk, wv, wo, up, down, bias [][][]float64
	// by position; positions from len on are of the run before
	keys, values [toyLayers][][]float64
	pos          int
	noise        *rand.Rand
	last         [][]float32 // logits of the run before, for "stale"
}

const (
	toyVocab, toyDim, toyLayers = 96, 32, 3
	// logits' noise whose KL, about noise^2/2, is some 5 x the threshold of cpu-bf16
	toyNoise = 0.13
)

func newToy(defect string) *toy {
	rng := rand.New(rand.NewPCG(11, 12))
	matrix := func(rows, cols int, scale float64) [][]float64 {
		m := make([][]float64, rows)
		for r := range m {
			m[r] = make([]float64, cols)
			for c := range m[r] {
				m[r][c] = rng.NormFloat64() * scale
			}
		}
		return m
	}
	t := &toy{defect: defect, embed: matrix(toyVocab, toyDim, 1), noise: rand.New(rand.NewPCG(1, 1))}
	s := 1 / math.Sqrt(toyDim)
	t.head = matrix(toyVocab, toyDim, 2*s)
	for range toyLayers {
		t.wq, t.wk = append(t.wq, matrix(toyDim, toyDim, 2*s)), append(t.wk, matrix(toyDim, toyDim, 2*s))
		t.wv, t.wo = append(t.wv, matrix(toyDim, toyDim, s)), append(t.wo, matrix(toyDim, toyDim, 2*s))
		t.up, t.down = append(t.up, matrix(toyDim, toyDim, s)), append(t.down,
			matrix(toyDim, toyDim, 2*s))
		t.bias = append(t.bias, matrix(1, toyDim, 1))
	}
	return t
}

func times(m [][]float64, x []float64) []float64 {
	y := make([]float64, len(m))
	for r, row := range m {
		for c, v := range row {
			y[r] += v * x[c]
		}
	}
	return y
}

func normed(x []float64) []float64 {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v / math.Sqrt(sum/float64(len(x))+1e-6)
	}
	return y
}

func (t *toy) rope(x []float64, pos int) {
	for i := range toyDim / 2 {
		a, b := i, i+toyDim/2
		if t.defect == "interleaved" {
			a, b = 2*i, 2*i+1
		}
		sin, cos := math.Sincos(float64(pos) * math.Pow(100, -2*float64(i)/toyDim))
		x[a], x[b] = x[a]*cos-x[b]*sin, x[b]*cos+x[a]*sin
	}
}

// feed appends one id and returns the logits after it.
func (t *toy) feed(id int32, decoding bool) []float32 {
	x := append([]float64(nil), t.embed[id]...)
	add := func(y []float64) {
		for i, v := range y {
			x[i] += v
		}
	}
	for l := range toyLayers {
		if t.defect == "dropped layer" && l == 1 {
			continue
		}
		h := normed(x)
		q, k, v := times(t.wq[l], h), times(t.wk[l], h), times(t.wv[l], h)
		if t.defect != "no bias" {
			for i, b := range t.bias[l][0] {
				q[i], k[i] = q[i]+b, k[i]+b
			}
		}
		qpos := t.pos
		if t.defect == "query one position late" {
			qpos++
		}
		t.rope(q, qpos)
		t.rope(k, t.pos)
		if t.pos < len(t.keys[l]) {
			t.keys[l][t.pos], t.values[l][t.pos] = k, v
		} else {
			t.keys[l], t.values[l] = append(t.keys[l], k), append(t.values[l], v)
		}
		seen := t.pos + 1
		switch {
		case t.defect == "previous token's KV" && t.pos > 0:
			seen--
		case t.defect == "cache read one too far" && t.pos+1 < len(t.keys[l]):
			seen++ // stale, from the run before
		case t.defect == "decoding forgets the cache" && decoding:
			add(times(t.wo[l], v))
			seen = 0
		}
		if seen > 0 {
			add(times(t.wo[l], attend(q, t.keys[l][:seen], t.values[l][:seen])))
		}
		h = times(t.up[l], normed(x))
		for i, v := range h {
			h[i] = math.Tanh(v)
		}
		add(times(t.down[l], h))
	}
	t.pos++
	logits := make([]float32, toyVocab)
	for i, v := range times(t.head, normed(x)) {
		logits[i] = float32(v)
		switch t.defect {
		case "zeros":
			logits[i] = 0
		case "doubled":
			logits[i] *= 2
		case "noise":
			logits[i] += float32(toyNoise * t.noise.NormFloat64())
		case "a NaN":
			if t.pos == 12 && i == 5 {
				logits[i] = float32(math.NaN())
			}
		}
	}
	return logits
}

func attend(q []float64, keys, values [][]float64) []float64 {
	y, sum := make([]float64, len(q)), 0.0
	for p, k := range keys {
		score := 0.0
		for i, v := range q {
			score += v * k[i] / math.Sqrt(toyDim)
		}
		e := math.Exp(score)
		sum += e
		for i, v := range values[p] {
			y[i] += e * v
		}
	}
	for i := range y {
		y[i] /= sum
	}
	return y
}

// Score is gate.Scorer's.
func (t *toy) Score(ctx context.Context, ids []int32, emit func(int, []float32) error) error {
	t.pos = 0
	var rows [][]float32
	for pos, id := range ids {
		if err := ctx.Err(); err != nil {
			return err
		}
		if t.defect == "ignores its input" {
			id = int32(pos % toyVocab)
		}
		logits := t.feed(id, false)
		rows = append(rows, logits)
		if t.defect == "stale logits" {
			logits = make([]float32, toyVocab)
			if pos < len(t.last) {
				logits = t.last[pos]
			}
		}
		if emit == nil {
			continue
		}
		if err := emit(pos, logits); err != nil {
			return err
		}
	}
	t.last = rows
	return nil
}

// stepper is a toy that can decode.
type stepper struct{ *toy }

// Step is gate.Stepper's.
func (s stepper) Step(ctx context.Context, id int32) ([]float32, error) {
	return s.feed(id, true), ctx.Err()
}
