package golden_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nlpodyssey/safetensors"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/gate/golden"
	"github.com/npukit/npukit/gate/internal/stats"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/npu/dtype"
)

// The files of the five tiny models have one sequence with all outputs.
func TestReadSafetensors(t *testing.T) {
	for _, name := range []string{"llama-tied-rope-scaled", "llama-untied-sharded", "qwen2-bias",
		"qwen3-qknorm", "smollm-mha"} {
		g, err := golden.Read(filepath.Join(testenv.Root(), "testdata", "tiny-models", name,
			"golden.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		if len(g.Sequences) != 1 || !strings.HasPrefix(g.Source, "transformers") {
			t.Fatalf("%s: %d sequences from %q", name, len(g.Sequences), g.Source)
		}
		s := g.Sequences[0]
		if len(s.IDs) < 32 || len(s.Greedy) != 32 || s.Vocab() < 256 || len(s.NLL) != len(s.IDs)-1 {
			t.Errorf("%s: %d ids, %d greedy, vocabulary %d, %d likelihoods", name, len(s.IDs), len(s.Greedy),
				s.Vocab(), len(s.NLL))
		}
		for _, tap := range []string{"embed.embed", "layer.0.ffn.residual", "head.norm"} {
			if h := s.Hidden[tap]; len(h) == 0 || len(h)%len(s.IDs) != 0 {
				t.Errorf("%s: %s has %d values", name, tap, len(h))
			}
		}
		record, ok := s.Record()
		if !ok {
			t.Fatalf("%s: no logits", name)
		}
		tol, _ := gate.FormatThresholds("npu")
		r, err := gate.Teacher(context.Background(), record, record, s.IDs, tol)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for _, v := range s.NLL {
			sum += v
		}
		if mean := sum / float64(len(s.NLL)); math.Abs(r.Want.Mean-mean) > 1e-9 {
			t.Errorf("%s: mean NLL %v, the gate reports %v", name, mean, r.Want.Mean)
		}
	}
}

// The file of a real model has prompts with top logits, and a text with likelihoods.
func TestReadJSON(t *testing.T) {
	g := smol(t)
	if len(g.Sequences) != 5 {
		t.Fatalf("%d sequences", len(g.Sequences))
	}
	for _, s := range g.Sequences[:4] {
		if len(s.Top) != len(s.IDs) || len(s.Greedy) != 64 || len(s.Gaps) != 64 || s.NLL != nil ||
			s.Name == "" {
			t.Errorf("%q: %d ids, %d top, %d greedy, %d gaps", s.Name, len(s.IDs), len(s.Top), len(s.Greedy),
				len(s.Gaps))
		}
		if _, ok := s.Record(); ok {
			t.Errorf("%q: a record without logits", s.Name)
		}
	}
	if text := g.Sequences[4]; len(text.IDs) != 1024 || len(text.NLL) != 1023 ||
		text.Name != "war-and-peace.txt" {
		t.Errorf("%q: %d ids, %d likelihoods", text.Name, len(text.IDs), len(text.NLL))
	}
}

func smol(t *testing.T) *golden.File {
	t.Helper()
	g, err := golden.Read(filepath.Join(testenv.Root(), "testdata", "smollm2-135m", "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// array is a tensor of a safetensors file under construction.
type array struct {
	typ   safetensors.DType
	shape []uint64
	data  []byte
}

func write(t *testing.T, arrays map[string]array) string {
	t.Helper()
	views := map[string]safetensors.TensorView{}
	for name, a := range arrays {
		v, err := safetensors.NewTensorView(a.typ, a.shape, a.data)
		if err != nil {
			t.Fatal(err)
		}
		views[name] = v
	}
	data, err := safetensors.Serialize(views, map[string]string{"source": "a test"})
	if err != nil {
		t.Fatal(err)
	}
	return file(t, data)
}

func file(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "golden")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func ids(list ...int64) array {
	return array{safetensors.I64, []uint64{uint64(len(list))}, dtype.AsBytes(list)}
}

func floats(rows int, list ...float32) array {
	return array{safetensors.F32, []uint64{uint64(rows), uint64(len(list) / rows)},
		dtype.AsBytes(list)}
}

// Logits do not depend on the float type of the file.
func TestFloatTypes(t *testing.T) {
	f64 := array{safetensors.F64, []uint64{2, 3}, dtype.AsBytes([]int64{
		0, int64(math.Float64bits(1)), int64(math.Float64bits(-2)), int64(math.Float64bits(0.5)), 0,
		int64(math.Float64bits(3))})}
	half := array{safetensors.BF16, []uint64{2, 3},
		dtype.AsBytes([]dtype.BFloat16{0, dtype.FromFloat32(1), dtype.FromFloat32(-2),
			dtype.FromFloat32(0.5), 0,
			dtype.FromFloat32(3)})}
	for name, a := range map[string]array{"F32": floats(2, 0, 1, -2, 0.5, 0, 3), "F64": f64,
		"BF16": half} {
		g, err := golden.Read(write(t, map[string]array{"input_ids": ids(1, 2), "logits": a}))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if s := g.Sequences[0]; !slices.Equal(s.Logits, []float32{0, 1, -2, 0.5, 0, 3}) ||
			s.Greedy != nil || g.Source != "a test" {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// Every malformed file is an error that names the problem.
func TestHostileFiles(t *testing.T) {
	nan := float32(math.NaN())
	good := map[string]array{"input_ids": ids(0, 1), "logits": floats(2, 1, 2, 3, 4)}
	with := func(name string, a array) string {
		arrays := map[string]array{name: a}
		for k, v := range good {
			if _, has := arrays[k]; !has {
				arrays[k] = v
			}
		}
		return write(t, arrays)
	}
	whole, err := os.ReadFile(write(t, good))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ path, says string }{
		"missing":                {filepath.Join(t.TempDir(), "none"), "no such file"},
		"a folder":               {t.TempDir(), "not a regular file"},
		"a device":               {os.DevNull, "not a regular file"},
		"empty":                  {file(t, nil), "neither"},
		"text":                   {file(t, []byte("some words that are no JSON")), "neither"},
		"cut in the header":      {file(t, whole[:40]), "truncated"},
		"cut in the data":        {file(t, whole[:len(whole)-4]), "safetensors"},
		"no ids":                 {write(t, map[string]array{"logits": floats(2, 1, 2)}), "input_ids"},
		"ids as floats":          {with("input_ids", floats(1, 1, 2)), "I64"},
		"an id below zero":       {with("input_ids", ids(0, -1)), "-1"},
		"an id beyond int32":     {with("input_ids", ids(0, 1<<40)), "not an id"},
		"an id beyond the vocab": {with("input_ids", ids(0, 2)), "vocabulary of 2"},
		"greedy beyond":          {with("greedy", ids(7)), "vocabulary of 2"},
		"fewer rows":             {with("logits", floats(1, 1, 2)), "input_ids"},
		"logits as ids":          {with("logits", ids(1, 2)), "logits"},
		"a logit is NaN":         {with("logits", floats(2, 1, 2, nan, 4)), "position 1"},
		"hidden of another size": {with("hidden.0", floats(3, 1, 2, 3)), "hidden.0"},
		"hidden of no layer":     {with("hidden.x", floats(2, 1, 2)), "hidden.x"},
		"hidden of layer 00":     {with("hidden.00", floats(2, 1, 2)), "hidden.00"},
		"only ids": {write(t, map[string]array{"input_ids": ids(0, 1)}),
			"nothing but input_ids"},
		"JSON of another kind":   {file(t, []byte(`{"source": 3}`)), "JSON"},
		"JSON without sequences": {file(t, []byte(`{"source": "x"}`)), "no sequence"},
		"JSON cut":               {file(t, []byte(`{"text": {"input_ids": [1, 2`)), "JSON"},
		"JSON: NLL too short": {file(t, []byte(`{"text": {"input_ids": [1, 2, 3], "nll": [1]}}`)),
			"nll has 1"},
		"JSON: NLL below zero": {file(t, []byte(`{"text": {"input_ids": [1, 2], "nll": [-1]}}`)),
			"nll 0"},
		"JSON: id below zero": {file(t, []byte(`{"text": {"input_ids": [1, -2], "nll": [1]}}`)), "-2"},
		"JSON: top too short": {file(t,
			[]byte(`{"prompts": [{"input_ids": [1], "top_ids": [[1, 2]], "top_logits": [], "logsumexp": [1]}]}`)),
			"prompt 0"},
		"JSON: top not sorted": {file(t, []byte(
			`{"prompts": [{"input_ids": [1], "top_ids": [[1, 2]], "top_logits": [[1, 2]], "logsumexp": [3]}]}`)),
			"descending"},
		"JSON: impossible sum": {file(t, []byte(
			`{"prompts": [{"input_ids": [1], "top_ids": [[1, 2]], "top_logits": [[2, 1]], "logsumexp": [0]}]}`)),
			"logsumexp"},
		"JSON: gaps of others": {file(t,
			[]byte(`{"prompts": [{"input_ids": [1], "greedy": [1, 2], "greedy_top2_gap": [1]}]}`)), "gap"},
	} {
		g, err := golden.Read(tc.path)
		if err == nil || !strings.Contains(err.Error(), tc.says) ||
			!strings.HasPrefix(err.Error(), "golden: ") {
			t.Errorf("%s: %v, %v, want an error that says %q", name, g, err, tc.says)
		}
	}
}

// No truncation and no flipped byte of a file causes a panic.
func FuzzRead(f *testing.F) {
	data, err := os.ReadFile(filepath.Join(testenv.Root(), "testdata", "tiny-models", "smollm-mha",
		"golden.safetensors"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[:2048])
	f.Add([]byte(`{"text": {"input_ids": [1, 2], "nll": [1]}}`))
	f.Add([]byte(`{"prompts": [{"input_ids": [1], "top_ids": [[1, 2]], "top_logits": [[2, 1]], "logsumexp": [3], ` +
		`"greedy": [1]}]}`))
	path := filepath.Join(f.TempDir(), "golden")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if g, err := golden.Read(path); err == nil && len(g.Sequences) == 0 {
			t.Error("a file without sequences was read")
		}
	})
}

// scorer emits rows of logits for any ids.
type scorer [][]float32

func (s scorer) Score(_ context.Context, ids []int32, emit func(int, []float32) error) error {
	for pos := range ids {
		if err := emit(pos, s[pos]); err != nil {
			return err
		}
	}
	return nil
}

// Stored likelihoods and top logits catch a wrong device and pass a correct one.
func TestJudge(t *testing.T) {
	thresholds := gate.Thresholds{Format: "test", KLMean: 1e-3, KLP90: 1e-2, Top1: 0.99, Tie: 0.05,
		NLL: 1e-3, Note: "chosen for the test"}
	right := scorer{{0, 3, 1, -1}, {2, 0, 1, 1.5}, {1, 1, 4, 0}}
	ids := []int32{0, 1, 3}
	lse := func(row []float32) float64 {
		sum := 0.0
		for _, v := range row {
			sum += math.Exp(float64(v))
		}
		return math.Log(sum)
	}
	s := golden.Sequence{Name: "test", IDs: ids, NLL: []float64{lse(right[0]) - 3,
		lse(right[1]) - 1.5}, Top: []golden.Top{
		{IDs: []int32{1, 2}, Logits: []float64{3, 1}, LogSumExp: lse(right[0])},
		{IDs: []int32{0, 3}, Logits: []float64{2, 1.5}, LogSumExp: lse(right[1])},
		{IDs: []int32{2, 0}, Logits: []float64{4, 1}, LogSumExp: lse(right[2])},
	}}
	nan := float32(math.NaN())
	for _, tc := range []struct {
		name   string
		device scorer
		caught []string
	}{
		{"right", right, nil},
		// softmax does not see it
		{"shifted by a constant", scorer{{5, 8, 6, 4}, {2, 0, 1, 1.5}, {1, 1, 4, 0}}, nil},
		{"doubled", scorer{{0, 6, 2, -2}, {4, 0, 2, 3}, {2, 2, 8, 0}},
			[]string{gate.MeanKL, "p90 KL", "NLL"}},
		{"two ids swapped", scorer{{0, 3, 1, -1}, {1.5, 0, 1, 2}, {1, 1, 4, 0}},
			[]string{gate.MeanKL, "p90 KL", "top-1", "NLL", "NLL"}},
		{"NaN", scorer{{0, 3, 1, -1}, {2, nan, 1, 1.5}, {1, 1, 4, 0}}, []string{gate.NonFinite}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := golden.Judge(context.Background(), tc.device, s, thresholds)
			if err != nil {
				t.Fatal(err)
			}
			var caught []string
			for _, reason := range r.Reasons {
				caught = append(caught, reason.Metric)
			}
			if !slices.Equal(caught, tc.caught) {
				t.Errorf("caught by %q, want %q\n%v", caught, tc.caught, r)
			}
			if r.OK() != (tc.caught == nil) || errors.Is(r.Err(), gate.ErrFailed) == r.OK() ||
				strings.HasPrefix(r.String(), "PASS") != r.OK() {
				t.Errorf("OK %v, error %v, text %q", r.OK(), r.Err(), r)
			}
			var m map[string]any
			data, err := json.Marshal(r)
			if err == nil {
				err = json.Unmarshal(data, &m)
			}
			if err != nil || m["ok"] != r.OK() {
				t.Errorf("%v: %s", err, data)
			}
		})
	}
	same := golden.Sequence{Name: "likelihoods alone", IDs: []int32{1, 1, 1},
		NLL: []float64{lse([]float32{0, 3}) - 3, lse([]float32{0, 3}) - 3}}
	for value, metric := range map[float32]string{3: "", 2: "NLL", 4: "NLL"} {
		row := []float32{0, value}
		r, err := golden.Judge(context.Background(), scorer{row, row, row}, same, thresholds)
		if err != nil || r.OK() != (metric == "") || metric != "" && r.Reasons[0].Metric != metric {
			t.Errorf("%v: %v, want to be caught by %q\n%v", value, err, metric, r)
		}
	}
	if _, err := golden.Judge(context.Background(), right, golden.Sequence{IDs: ids, Greedy: ids},
		thresholds); err == nil {
		t.Error("a sequence without numbers was judged")
	}
	if _, err := golden.Judge(context.Background(), scorer{{1}, {1}, {1}}, s, thresholds); err == nil {
		t.Error("a device of another vocabulary was judged")
	}
}

func ExampleRead() {
	g, err := golden.Read("../../testdata/tiny-models/smollm-mha/golden.safetensors")
	if err != nil {
		fmt.Println(err)
		return
	}
	s := g.Sequences[0]
	fmt.Println(len(s.IDs), "ids, vocabulary", s.Vocab(), "and", len(s.Greedy), "greedy tokens")
	// Output: 40 ids, vocabulary 256 and 32 greedy tokens
}

// A device with constant logits fails by likelihoods alone, however few and different they are, and
// a reference that is certain of every token is refused.
func TestJudgeUniform(t *testing.T) {
	uniform := make([]float32, 256)
	s := golden.Sequence{Name: "uneven", IDs: []int32{1, 2, 3, 4, 5, 6, 7, 8, 9},
		NLL: []float64{9.2, 0.4, 8.1, 0.3, 7.0, 1.1, 9.4, 4.8}}
	sure := golden.Sequence{Name: "sure", IDs: s.IDs, NLL: make([]float64, 8)}
	var device scorer
	for range s.IDs {
		device = append(device, uniform)
	}
	for _, format := range []string{"cpu-bf16", "cpu-f32", "npu"} {
		th, ok := gate.FormatThresholds(format)
		if !ok {
			t.Fatal(format)
		}
		for _, q := range []golden.Sequence{s, sure} {
			r, err := golden.Judge(context.Background(), device, q, th)
			if err != nil || r.OK() || r.Reasons[0].Metric != "NLL" {
				t.Errorf("%s, %s: %v, %v", format, q.Name, r, err)
			}
		}
	}
	if _, err := golden.Read(file(t,
		[]byte(`{"text": {"file": "sure", "input_ids": [1, 2, 3], "nll": [0, 0]}}`))); err == nil ||
		!strings.Contains(err.Error(), "nll is 0") {
		t.Errorf("a file with nothing to compare: %v", err)
	}
}

// Stored top logits are judged by every threshold that full logits are: maximum, 90th percentile,
// and the number of decided positions.
func TestJudgeIsTeachers(t *testing.T) {
	th := gate.Thresholds{Format: "test", KLMean: 0.5, KLP90: 0.6, KLMax: 0.7, Top1: 0.5, Tie: 0.05,
		NLL: 0.4, Note: "chosen for the test"}
	base, tie := []float32{6, 5, 1, 0}, []float32{6, 6, 6, 5}
	for name, tc := range map[string]struct {
		row, wrong []float32
		at         func(pos int) bool
		caught     string
	}{
		"one position": {base, []float32{6, 9, 1, 0}, func(pos int) bool { return pos == 20 },
			"max KL"},
		"an eighth of them": {base, []float32{6, 9, 1, 0}, func(pos int) bool { return pos%8 == 0 },
			"p90 KL"},
		"nothing is decided": {tie, tie, func(int) bool { return false }, "top-1"},
	} {
		s := golden.Sequence{Name: name}
		var device scorer
		var logits []float32
		for pos := range 32 {
			s.IDs = append(s.IDs, 0)
			s.Top = append(s.Top, golden.Top{IDs: []int32{0, 1, 2, 3},
				Logits: []float64{float64(tc.row[0]), float64(tc.row[1]), float64(tc.row[2]),
					float64(tc.row[3])}, LogSumExp: stats.LogSumExp(tc.row)})
			logits = append(logits, tc.row...)
			if tc.at(pos) {
				device = append(device, tc.wrong)
			} else {
				device = append(device, tc.row)
			}
		}
		stored, err := golden.Judge(context.Background(), device, s, th)
		if err != nil {
			t.Fatal(err)
		}
		all, err := gate.Teacher(context.Background(), device, gate.Recorded{IDs: s.IDs, Logits: logits},
			s.IDs, th)
		if err != nil {
			t.Fatal(err)
		}
		has := func(list []gate.Reason) bool {
			return slices.ContainsFunc(list, func(r gate.Reason) bool { return r.Metric == tc.caught })
		}
		if !has(stored.Reasons) || !has(all.Reasons) {
			t.Errorf("%s: want %q among %v and among %v", name, tc.caught, stored.Reasons, all.Reasons)
		}
	}
}
