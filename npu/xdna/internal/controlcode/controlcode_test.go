package controlcode

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/npu/xdna/internal/elftest"
)

// vadd is a full ELF of one program that adds two arguments of 4 KiB.
func vadd(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "internal", "xrttest", "testdata", "vadd.elf"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestELF(t *testing.T) {
	p, err := ELF(vadd(t), "main:vadd")
	if err != nil {
		t.Fatal(err)
	}
	want := &Program{Arguments: []Usage{{Reach: 4096}, {Reach: 4096}, {Reach: 4096}}, Transfers: 3}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v, want %+v", p, want)
	}
	if _, err := ELF(vadd(t), "main:vsub"); err == nil || !strings.Contains(err.Error(), "main:vadd") {
		t.Errorf("another instance: error %v does not name those that exist", err)
	}
}

// Real artefacts: two programs of Triton-XDNA in a full ELF, and instructions of MLIR-AIR, whose
// transfers are strided.
func TestPublishedArtefacts(t *testing.T) {
	read := func(name string) []byte {
		data, err := os.ReadFile(testenv.Shared(t, filepath.Join("npu", name)))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	file := read("triton-xdna/aie.elf")
	kernels, err := Kernels(file)
	if want := []string{"square_kernel_0:square_kernel_0_sequence", "main:square_kernel"}; err != nil ||
		!reflect.DeepEqual(kernels, want) {
		t.Errorf("kernels %q, %v, want %q", kernels, err, want)
	}
	for _, k := range kernels {
		p, err := ELF(file, k)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Arguments) != 8 || p.Arguments[0].Reach != 128<<10 || p.Arguments[1].Reach != 128<<10 ||
			p.Arguments[2].Reach != 0 || p.Transfers != 16 {
			t.Errorf("%s: %+v, want 16 transfers that reach 128 KiB of two arguments of eight", k, p)
		}
	}
	p, err := Instructions(read("mlir-air/vector_reciprocal.air.insts.bin"))
	if err != nil {
		t.Fatal(err)
	}
	strided := Usage{Reach: 256 << 10, Pitches: []int64{2 << 10, 8 << 10}}
	if want := (&Program{Arguments: []Usage{strided, strided}, Transfers: 4}); !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v, want %+v", p, want)
	}
}

// stream returns a transaction of one descriptor that an argument patches.
func stream(arg, plus uint32, bd [descriptorWords]uint32) []byte {
	words := []uint32{0x06040100, 0x00000108, 2, 0, opBlockWrite, 0, shimDescriptors, 48}
	words = append(words, bd[:]...)
	words = append(words, opPatch, 48, 0, 0, 0, 0, shimDescriptors+4, 0, arg, 0, plus, 0)
	words[3] = uint32(4 * len(words))
	var b []byte
	for _, w := range words {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

func TestDescriptors(t *testing.T) {
	dim := func(size, step uint32) uint32 { return size<<20 | (step - 1) }
	for _, tc := range []struct {
		name string
		bd   [descriptorWords]uint32
		want Usage
	}{
		{"linear", [8]uint32{64, 0, 0, dim(0, 1), dim(0, 1), dim(0, 1)}, Usage{Reach: 100 + 4*64}},
		{"rows of 16 words, 32 apart", [8]uint32{64, 0, 0, dim(16, 1), dim(0, 32), dim(0, 1)},
			Usage{100 + 4*(15+3*32+1), []int64{128}}},
		{"two blocks of two rows", [8]uint32{64, 0, 0, dim(16, 1), dim(2, 32), dim(0, 256)},
			Usage{100 + 4*(15+32+256+1), []int64{128, 1024}}},
		{"three repetitions, 512 words apart", [8]uint32{64, 0, 0, dim(0, 1), dim(0, 1), dim(0, 1), dim(2, 512)},
			Usage{100 + 4*(64+2*512), []int64{2048}}},
		{"nothing", [8]uint32{}, Usage{Reach: 100}},
	} {
		p, err := Instructions(stream(2, 100, tc.bd))
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Arguments) != 3 || !reflect.DeepEqual(p.Arguments[2], tc.want) {
			t.Errorf("%s: got %+v, want argument 2 to be %+v", tc.name, p.Arguments, tc.want)
		}
	}
}

// A section may be compressed, with a header of 12 bytes before its data.
func TestCompressedControlCode(t *testing.T) {
	data := vadd(t)
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	headers := int(le.Uint32(data[32:])) // e_shoff
	for i, s := range f.Sections {
		if s.Name != ".ctrltext.0" {
			continue
		}
		code, err := s.Data()
		if err != nil {
			t.Fatal(err)
		}
		packed := le.AppendUint32(nil, uint32(elf.COMPRESS_ZLIB))
		packed = le.AppendUint32(le.AppendUint32(packed, uint32(len(code))), 16)
		var b bytes.Buffer
		w := zlib.NewWriter(&b)
		if _, err := w.Write(code); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		packed = append(packed, b.Bytes()...)
		header := data[headers+40*i:]
		le.PutUint32(header[8:], le.Uint32(header[8:])|uint32(elf.SHF_COMPRESSED))
		le.PutUint32(header[16:], uint32(len(data)))
		le.PutUint32(header[20:], uint32(len(packed)))
		data = append(data, packed...)
	}
	p, err := ELF(data, "main:vadd")
	if err != nil || p.Transfers != 3 || p.Arguments[2].Reach != 4096 {
		t.Errorf("got %+v, %v, want the program of the file that is not compressed", p, err)
	}
}

func TestDamage(t *testing.T) {
	good := vadd(t)
	for n := 0; n < len(good); n += 7 {
		if p, err := ELF(good[:n], "main:vadd"); err == nil {
			t.Fatalf("%d bytes of %d: read as %+v", n, len(good), p)
		}
	}
	code := stream(0, 0, [descriptorWords]uint32{64})
	for n := 0; n < len(code); n++ {
		if p, err := Instructions(code[:n]); err == nil {
			t.Fatalf("%d bytes of %d: read as %+v", n, len(code), p)
		}
	}
	long := strings.Repeat("x", 2*maxName)
	if _, err := Kernels(elftest.Write(t, 1, elftest.Instance{Name: long, Stream: code})); err == nil ||
		!strings.Contains(err.Error(), "name") {
		t.Errorf("a name of %d bytes: %v", len(long), err)
	}
	if _, err := Instructions(stream(1<<20, 0, [descriptorWords]uint32{64})); err == nil {
		t.Error("argument 1048576 is accepted")
	}
}

// Hostile files end in an error, or in a program whose figures are not negative.
func FuzzELF(f *testing.F) {
	f.Add(vadd(f))
	f.Fuzz(func(t *testing.T, data []byte) {
		kernels, err := Kernels(data)
		if err != nil {
			return
		}
		for _, k := range kernels {
			if p, err := ELF(data, k); err == nil {
				checkFigures(t, p)
			}
		}
	})
}

func FuzzInstructions(f *testing.F) {
	f.Add(stream(3, 64, [descriptorWords]uint32{64, 0, 0, 1 << 20, 1 << 20}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if p, err := Instructions(data); err == nil {
			checkFigures(t, p)
		}
	})
}

func checkFigures(t *testing.T, p *Program) {
	t.Helper()
	if len(p.Arguments) > maxArguments || p.Transfers < 0 {
		t.Errorf("%d arguments, %d transfers", len(p.Arguments), p.Transfers)
	}
	for i, u := range p.Arguments {
		if u.Reach < 0 {
			t.Errorf("argument %d reaches %d bytes", i, u.Reach)
		}
	}
}
