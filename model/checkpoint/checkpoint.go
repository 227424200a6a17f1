// Package checkpoint opens trained models: a Hugging Face folder or a GGUF file becomes a [Config]
// and typed tensors under Hugging Face's names, and nothing is left to chance.
//
//	c, err := checkpoint.Open("SmolLM2-135M-Instruct", nil)  // or "model.gguf"
//	if err != nil { ... }                                   // names the file, the tensor or field, and what to do
//	defer c.Close()
//	fmt.Println(c.Config().Family, c.Parameters())          // llama 134515008
//	w, err := c.Tensor("model.layers.0.self_attn.q_proj.weight")
//	row := make([]float32, w.Shape[1])
//	err = dtype.Dequantize(row, w.Type, w.Row(0))
//
// # What is read
//
// Families: Llama (RoPE scaling none, linear, llama3), SmolLM2, Qwen2 and Qwen2.5 (biases on q, k,
// v), Qwen3 (norms on q and k).
//
// A Hugging Face folder has config.json in the old style (rope_theta, rope_scaling, torch_dtype) or
// the new (rope_parameters, dtype), model.safetensors or shards with model.safetensors.index.json,
// in F32, F16 or BF16, and optionally generation_config.json, tokenizer.json,
// tokenizer_config.json, chat_template.jinja, additional_chat_templates.
//
// A GGUF file (version 3, little-endian) has everything in one: F32, F16, BF16, Q8_0, Q4_0, Q4_1,
// Q5_0, Q5_1, Q4_K, Q5_K, Q6_K.
//
// # What is checked
//
// Open reads the headers and checks that every tensor the family needs is there with the right
// shape and a type that can be computed with. A tensor that the family does not know is an error,
// because computing without it would be wrong in silence; only rotary_emb.inv_freq buffers and an
// lm_head.weight beside tied embeddings are left out. Models that would compute something else
// (mixture of experts, sliding windows, other activations or RoPE kinds, ...) are refused by name
// with an [ErrUnsupported]. Weights themselves are not looked at: [Checkpoint.NonFinite] finds
// NaN and infinities when asked.
//
// Settings that only are defaults, such as those of generation_config.json, never keep a model from
// opening: [Checkpoint.Warnings] lists what was ignored or read in another way.
//
// Files may be hostile: every length, offset and count is checked before it is used. One thing a
// mapping cannot survive: if another process truncates the file, the next access to a lost page
// ends the program with SIGBUS. Replace checkpoints by renaming a new file over the old one, never
// by writing into it, or set [OpenOptions].ReadWeights.
//
// # Memory
//
// Tensors lie in the file's mapping and are neither read nor copied by Open: a checkpoint of any
// size opens in milliseconds, pages come in when weights are first used, and the kernel may drop
// them again. Tensors that must be rearranged are copied once, when first asked for, into memory
// outside the Go heap. Either way no garbage collector moves or frees them, so that C code may keep
// pointers to their data until Close. Release is for those who have made a copy of their own.
package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/edsrzf/mmap-go"

	"github.com/npukit/npukit/npu/dtype"
)

// Checkpoint is an open model. It is safe for concurrent use, except that Close must come last.
type Checkpoint struct {
	path, format string
	config       *Config
	generation   *Generation
	text         Text
	warnings     warnings
	read         bool // files are read into memory, not mapped

	entries map[string]*entry
	names   []string // sorted

	mu     sync.Mutex  // guards what follows
	maps   []mmap.MMap // files and rearranged tensors
	closed bool
}

// Tensor is one weight.
type Tensor struct {
	Name  string // Hugging Face's name
	Type  dtype.Type
	Shape []int // row-major, outermost first: [out, in] for projections

	// Data is the elements, row after row, little-endian, aligned for Type. It is valid until
	// Close, must not be written to, and lies outside the Go heap.
	Data   []byte
	Mapped bool // Data is the file's own bytes, mapped or read; else it is a rearranged copy
}

// Elements is the number of elements.
func (t Tensor) Elements() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Bytes is the size of the elements as stored.
func (t Tensor) Bytes() int { return t.Type.Bytes(t.Elements()) }

// Row is the i-th row, where a row is all elements that share the first index: what
// [dtype.Dequantize] takes.
func (t Tensor) Row(i int) []byte {
	size := t.Bytes() / t.Shape[0]
	return t.Data[i*size:][:size]
}

// entry is a tensor and how to arrange it.
type entry struct {
	Tensor // Data is nil until arranged
	stored stored
	heads  int  // > 0: rows of each of so many heads are interleaved and have to be put in half-split order
	filled bool // Data of a rearranged copy holds the elements; guarded by Checkpoint.mu, and so is Data then
}

// OpenOptions are choices made when a checkpoint is opened.
type OpenOptions struct {
	// ReadWeights reads the weights into memory instead of mapping their files, so that a program
	// survives a file that is truncated or overwritten while the checkpoint is open. Opening then
	// takes as long as reading the files, and costs their size in memory until Close, beside the
	// copies that a device makes: Release frees nothing.
	ReadWeights bool
}

// Open opens a Hugging Face folder or a GGUF file, depending on its content. A folder of the Hugging
// Face cache opens as described at [Resolve]. opts may be nil.
//
// If path does not exist, the error wraps fs.ErrNotExist. If the model uses a feature that this
// package does not support, it wraps [ErrUnsupported]. Errors about the content of a file are of
// type [*Error].
func Open(path string, opts *OpenOptions) (*Checkpoint, error) {
	path, err := Resolve(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("checkpoint: %w: give the path of a Hugging Face folder or of a .gguf file", err)
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	c := &Checkpoint{path: path, entries: map[string]*entry{}, read: opts != nil && opts.ReadWeights}
	if info.IsDir() {
		err = loader{c}.openFolder()
	} else {
		err = loader{c}.openFile()
	}
	if err != nil {
		_ = c.Close() // the first error matters more
		return nil, err
	}
	return c, nil
}

// loader fills a checkpoint while it is opened.
type loader struct{ *Checkpoint }

func (c loader) openFile() error {
	m, err := c.mapFile(c.path)
	if err != nil {
		return err
	}
	if bytes.HasPrefix(m, []byte("GGUF")) {
		return c.openGGUF(m)
	}
	if name := filepath.Base(c.path); strings.HasSuffix(name, ".safetensors") || strings.HasSuffix(name, ".json") {
		return fileErrorf(c.path, "is part of a Hugging Face checkpoint: give its folder, %s", filepath.Dir(c.path))
	}
	return fileErrorf(c.path, "is no GGUF file (it does not begin with \"GGUF\"); a checkpoint is a GGUF file or a "+
		"Hugging Face folder")
}

// mapFile maps a file, or reads it, until Close.
func (c loader) mapFile(file string) (mmap.MMap, error) {
	load := mapFile
	if c.read {
		load = loadFile
	}
	m, err := load(file)
	if err != nil {
		return nil, err
	}
	c.maps = append(c.maps, m)
	return m, nil
}

// adopt takes the tensors that match found, and settles what the config leaves open. heads tells
// how many heads of a tensor are to be put in order, 0 for most.
func (c loader) adopt(tensors []stored, heads func(name string) int) {
	count := map[dtype.Type]int{}
	for _, s := range tensors {
		e := &entry{stored: s, heads: heads(s.name), Tensor: Tensor{Name: s.name, Type: s.typ, Shape: s.shape}}
		if e.heads == 0 && aligned(s.data, s.typ) {
			e.Data, e.Mapped = s.data, true
		}
		c.entries[s.name] = e
		c.names = append(c.names, s.name)
		count[s.typ] += e.Elements()
	}
	slices.Sort(c.names)
	if c.config.DType == dtype.Invalid {
		for t, n := range count {
			if best := count[c.config.DType]; n > best || n == best && t < c.config.DType {
				c.config.DType = t
			}
		}
	}
}

// Tensor finds a weight by its Hugging Face name, such as "model.layers.0.self_attn.q_proj.weight",
// whatever the file calls it. Where embeddings are tied there is no lm_head.weight: see
// [Config].TieEmbeddings. The first call for a tensor that has to be rearranged copies it; later
// ones give the same memory, until it is released.
func (c *Checkpoint) Tensor(name string) (Tensor, error) {
	e, err := c.entry(name)
	if err != nil {
		return Tensor{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return Tensor{}, ErrClosed
	}
	if !e.Mapped && !e.filled {
		if err := c.arrange(e); err != nil {
			return Tensor{}, err
		}
	}
	return e.Tensor, nil
}

// Stat describes a weight as Tensor gives it, and copies nothing: Data is nil in those that are
// rearranged when Tensor is asked for them.
func (c *Checkpoint) Stat(name string) (Tensor, error) {
	e, err := c.entry(name)
	if err != nil {
		return Tensor{}, err
	}
	return e.described(), nil
}

func (c *Checkpoint) entry(name string) (*entry, error) {
	if e := c.entries[name]; e != nil {
		return e, nil
	}
	problem := "is not in this model"
	if name == "lm_head.weight" {
		problem += ": its LM head is model.embed_tokens.weight (tied embeddings)"
	}
	return nil, &Error{File: c.path, Tensor: name, Problem: problem}
}

func (e *entry) described() Tensor {
	t := Tensor{Name: e.Name, Type: e.Type, Shape: e.Shape}
	if e.Mapped {
		t.Data, t.Mapped = e.stored.data, true
	}
	return t
}

// Release lets the system take back the memory of a tensor, so that a model of which somebody has
// made a copy in another form does not count twice. A mapped tensor reads as before, from the file.
// The data of a rearranged one must not be read any more until Tensor is asked for it, which copies
// it again to the same address: only those release it who know of every reader. With
// [OpenOptions].ReadWeights Release does nothing.
func (c *Checkpoint) Release(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[name]; e != nil && !c.closed && !c.read {
		release(e.Data)
		e.filled = false
	}
}

// Tensors lists all weights by name, for an overview, as Stat describes them.
func (c *Checkpoint) Tensors() []Tensor {
	all := make([]Tensor, len(c.names))
	for i, name := range c.names {
		all[i] = c.entries[name].described()
	}
	return all
}

// Config is the architecture; callers must not change it.
func (c *Checkpoint) Config() *Config { return c.config }

// Generation is the makers' sampling defaults, never nil.
func (c *Checkpoint) Generation() *Generation { return c.generation }

// Path is what was opened: of a folder of the Hugging Face cache, its snapshot.
func (c *Checkpoint) Path() string { return c.path }

// Format is "safetensors" or "gguf".
func (c *Checkpoint) Format() string { return c.format }

// Size is the bytes of all weights as stored, tied embeddings counted once.
func (c *Checkpoint) Size() (bytes int64) {
	for _, e := range c.entries {
		bytes += int64(e.Bytes())
	}
	return bytes
}

// Parameters is the number of weights, tied embeddings counted once.
func (c *Checkpoint) Parameters() (n int64) {
	for _, e := range c.entries {
		n += int64(e.Elements())
	}
	return n
}

// Close unmaps the files. Tensors must not be used after it: touching their data would end the
// program. A second Close does nothing.
func (c *Checkpoint) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	var errs []error
	for _, m := range c.maps {
		if err := m.Unmap(); err != nil {
			errs = append(errs, fmt.Errorf("checkpoint: %s: unmapping: %w", c.path, err))
		}
	}
	c.maps = nil
	return errors.Join(errs...)
}
