package dtype

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// nearestBF16 rounds by definition: it returns the closer of the two BFloat16 neighbors of f, or
// the even one on a tie. It compares values in float64, where this is exact.
func nearestBF16(f float32) BFloat16 {
	down := BFloat16(math.Float32bits(f) >> 16) // towards zero
	up := down + 1                              // away from zero; infinity counts as 2^128
	value := func(b BFloat16) float64 {
		v := float64(b.Float32())
		if math.IsInf(v, 0) {
			return math.Copysign(math.Ldexp(1, 128), v)
		}
		return v
	}
	toDown, toUp := math.Abs(float64(f)-value(down)), math.Abs(value(up)-float64(f))
	if toDown < toUp || toDown == toUp && down&1 == 0 {
		return down
	}
	return up
}

func TestFromFloat32RoundsToNearestEven(t *testing.T) {
	// Every BFloat16 pattern with every class of low bits: exact, just above, just under a tie, the
	// tie, just over, just under the next. These are all the ways in which a single can round.
	for top := uint32(0); top < 1<<16; top++ {
		for _, low := range []uint32{0, 1, 0x3fff, 0x7fff, 0x8000, 0x8001, 0xc000, 0xffff} {
			f := math.Float32frombits(top<<16 | low)
			got := FromFloat32(f)
			switch {
			case f != f:
				if v := got.Float32(); v == v || got&0x40 == 0 {
					t.Fatalf("FromFloat32(NaN %#x) = %#x, want a quiet NaN", math.Float32bits(f), got)
				}
			case math.IsInf(float64(f), 0):
				if got.Float32() != f {
					t.Fatalf("FromFloat32(%v) = %v", f, got.Float32())
				}
			default:
				if want := nearestBF16(f); got != want {
					t.Fatalf("FromFloat32(%v, bits %#x) = %#x, want %#x", f, math.Float32bits(f), got, want)
				}
			}
		}
	}
}

// math/big rounds to nearest even, an independent check on values of the whole range. Only normal
// results are compared because big has no subnormals.
func TestFromFloat32AgreesWithBig(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		f := math.Float32frombits(rng.Uint32())
		if exp := math.Float32bits(f) >> 23 & 0xff; exp == 0 || exp >= 0xfe {
			continue
		}
		want, _ := new(big.Float).SetPrec(8).SetMode(big.ToNearestEven).SetFloat64(float64(f)).Float32()
		if got := FromFloat32(f).Float32(); got != want {
			t.Fatalf("FromFloat32(%v) = %v, want %v", f, got, want)
		}
	}
}

func TestBF16RoundTrip(t *testing.T) {
	src := make([]BFloat16, 1<<16)
	for i := range src {
		src[i] = BFloat16(i)
	}
	wide, back := make([]float32, len(src)), make([]BFloat16, len(src))
	BF16ToF32(wide, src)
	F32ToBF16(back, wide)
	for i, b := range src {
		want := b
		if v := b.Float32(); v != v {
			want |= 0x40 // NaN becomes quiet
		}
		if math.Float32bits(wide[i]) != uint32(i)<<16 || back[i] != want {
			t.Fatalf("%#x became %#x and then %#x", b, math.Float32bits(wide[i]), back[i])
		}
	}
}

// Half precision by definition: sign * 2^(exponent-15) * 1.fraction, or 2^-14 * 0.fraction if the
// exponent field is zero.
func TestF16RoundTrip(t *testing.T) {
	src := make([]Float16, 1<<16)
	for i := range src {
		src[i] = Float16(i)
	}
	wide, back := make([]float32, len(src)), make([]Float16, len(src))
	F16ToF32(wide, src)
	F32ToF16(back, wide)
	for i, h := range src {
		exp, frac := i>>10&31, float64(i&1023)/1024
		want := math.Ldexp(1+frac, exp-15)
		switch {
		case exp == 0:
			want = math.Ldexp(frac, -14)
		case exp == 31 && frac == 0:
			want = math.Inf(1)
		case exp == 31:
			want = math.NaN()
		}
		if i>>15 == 1 {
			want = -want
		}
		if got := wide[i]; math.Float32bits(got) != math.Float32bits(float32(want)) && !(got != got && want != want) {
			t.Fatalf("F16 %#x became %v, want %v", i, got, want)
		}
		if back[i] != h && !(h.IsNaN() && back[i] == h|0x200) {
			t.Fatalf("F16 %#x came back as %#x", h, back[i])
		}
	}
}

func TestF32ToF16RoundsToNearestEven(t *testing.T) {
	for _, tc := range []struct {
		in   float32
		want uint16
	}{
		{1 + 1.0/2048, 0x3c00},                 // tie, even below
		{1 + 3.0/2048, 0x3c02},                 // tie, even above
		{65519, 0x7bff},                        // under the last tie: the largest
		{65520, 0x7c00},                        // the tie rounds to infinity
		{float32(math.Ldexp(1, -25)), 0},       // tie with zero
		{float32(math.Ldexp(3, -26)), 1},       // over it: the smallest subnormal
		{-float32(math.Ldexp(1, -14)), 0x8400}, // smallest normal
	} {
		var dst [1]Float16
		F32ToF16(dst[:], []float32{tc.in})
		if uint16(dst[0]) != tc.want {
			t.Errorf("%v became %#x, want %#x", tc.in, uint16(dst[0]), tc.want)
		}
	}
}

func BenchmarkConvert(b *testing.B) {
	const n = 1 << 16
	f, h, w := make([]float32, n), make([]Float16, n), make([]BFloat16, n)
	for i := range f {
		f[i] = float32(i)/n - 0.5
	}
	F32ToF16(h, f)
	for _, bc := range []struct {
		name string
		run  func()
	}{
		{"BF16ToF32", func() { BF16ToF32(f, w) }},
		{"F32ToBF16", func() { F32ToBF16(w, f) }},
		{"F16ToF32", func() { F16ToF32(f, h) }},
		{"F32ToF16", func() { F32ToF16(h, f) }},
	} {
		b.Run(bc.name, func(b *testing.B) {
			b.SetBytes(4 * n)
			for b.Loop() {
				bc.run()
			}
		})
	}
}

func ExampleFromFloat32() {
	for _, f := range []float32{1, 1.00390625, 1.01171875, 3.14159265} {
		b := FromFloat32(f)
		fmt.Printf("%v is %v in BF16 (%#04x)\n", f, b.Float32(), uint16(b))
	}
	// Output:
	// 1 is 1 in BF16 (0x3f80)
	// 1.0039062 is 1 in BF16 (0x3f80)
	// 1.0117188 is 1.015625 in BF16 (0x3f82)
	// 3.1415927 is 3.140625 in BF16 (0x4049)
}
