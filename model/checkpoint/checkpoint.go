// Package checkpoint opens trained models. A Hugging Face folder or a GGUF file becomes a [Config]
// and typed tensors under Hugging Face's names.
//
//	c, err := checkpoint.Open("SmolLM2-135M-Instruct", nil) // or "model.gguf"
//	if err != nil { ... }                                   // names the file, and the tensor or field
//	defer c.Close()
//	fmt.Println(c.Config().Family, c.Parameters())          // llama 134515008
//	w, err := c.Tensor("model.layers.0.self_attn.q_proj.weight")
//	row := make([]float32, w.Shape[1])
//	err = dtype.Dequantize(row, w.Type, w.Row(0))
//
// # Supported models
//
// The families are Llama (RoPE scaling none, linear, llama3), SmolLM2, Qwen2 and Qwen2.5 (biases on
// q, k, v), and Qwen3 (norms on q and k).
//
// A Hugging Face folder has config.json in the old style (rope_theta, rope_scaling, torch_dtype) or
// the new one (rope_parameters, dtype), and model.safetensors, or shards with
// model.safetensors.index.json, in F32, F16 or BF16. generation_config.json, tokenizer.json,
// tokenizer_config.json, chat_template.jinja and additional_chat_templates are optional.
//
// A GGUF file (version 3, little-endian) has everything in one file: F32, F16, BF16, Q8_0, Q4_0,
// Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K.
//
// # Checks
//
// Open reads the headers and checks that every tensor of the family exists with the right shape and
// a supported type. An unknown tensor is an error, because ignoring it could silently change the
// results; the exceptions are rotary_emb.inv_freq buffers, and an lm_head.weight of a model with
// tied embeddings. Models with an unsupported feature (mixture of experts, sliding windows, other
// activations or kinds of RoPE, ...) are an [ErrUnsupported] that names the feature. Open does not
// read the weights themselves: use [Checkpoint.NonFinite] to find NaN and infinities.
//
// Settings that are only defaults, such as those of generation_config.json, never prevent a model
// from opening. [Checkpoint.Warnings] lists those that were ignored or changed.
//
// Files may be hostile: every length, offset and count is checked before use. There is one
// exception: if another process truncates a mapped file, the next access to a lost page ends the
// program with SIGBUS. Replace checkpoints by renaming a new file over the old one, or set
// [OpenOptions].ReadWeights.
//
// # Memory
//
// Open maps the files and neither reads nor copies tensors, so a checkpoint of any size opens in
// milliseconds. The kernel loads pages when weights are first used and may drop them again. A
// tensor that must be rearranged is copied at its first use, into memory outside the Go heap. The
// garbage collector never moves or frees tensors, so C code may keep pointers to them until Close.
// [Checkpoint.Release] is for callers that have made their own copy.
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

// Checkpoint is an open model. It is safe for concurrent use, except that Close must be the last
// call.
type Checkpoint struct {
	path, format string
	config       *Config
	generation   *Generation
	text         Text
	warnings     warnings
	read         bool // files are read into memory, not mapped

	entries map[string]*entry
	names   []string // sorted

	mu     sync.Mutex  // guards the fields below
	maps   []mmap.MMap // files and rearranged tensors
	closed bool
}

// Tensor is one weight.
type Tensor struct {
	Name  string // Hugging Face's name
	Type  dtype.Type
	Shape []int // row-major, outermost first: [out, in] for projections

	// Data has the elements, row after row, little-endian, aligned for Type. It is valid until
	// Close, must not be written to, and is outside the Go heap.
	Data   []byte
	Mapped bool // Data is the file's own bytes, not a rearranged copy
}

// Elements returns the number of elements.
func (t Tensor) Elements() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Bytes returns the size of the elements as stored.
func (t Tensor) Bytes() int { return t.Type.Bytes(t.Elements()) }

// Row returns the i-th row, for example for [dtype.Dequantize]. A row has all elements with the
// same first index.
func (t Tensor) Row(i int) []byte {
	size := t.Bytes() / t.Shape[0]
	return t.Data[i*size:][:size]
}

// entry is a tensor and how to arrange it.
type entry struct {
	Tensor // Data is nil until arranged
	stored stored
	heads  int  // if not 0, the rows of each of this many heads are interleaved
	filled bool // Data is a complete copy; guarded by Checkpoint.mu, like Data of a copy
}

// OpenOptions are the options of [Open].
type OpenOptions struct {
	// ReadWeights reads the weights into memory instead of mapping their files, so that the program
	// survives a file that is truncated or overwritten while the checkpoint is open. Opening then
	// takes as long as reading the files, and the weights stay in memory until Close, in addition
	// to copies that a device makes. Release has no effect.
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
		return fileErrorf(c.path, "is part of a Hugging Face checkpoint: open its folder, %s", filepath.Dir(c.path))
	}
	return fileErrorf(c.path, "is not a GGUF file (it does not start with \"GGUF\"): open a GGUF file or a "+
		"Hugging Face folder")
}

// mapFile maps a file, or reads it with ReadWeights. Close frees the memory.
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

// adopt adds the tensors of match, and chooses a DType if the config has none. heads returns the
// number of heads of a tensor whose rows must be reordered, or 0.
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

// Tensor returns a weight by its Hugging Face name, for example
// "model.layers.0.self_attn.q_proj.weight", in both formats. With tied embeddings there is no
// lm_head.weight: see [Config].TieEmbeddings. The first call for a tensor that must be rearranged
// copies it; later calls return the same memory until it is released.
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

// Stat is like Tensor, but never copies: Data is nil if Tensor would rearrange the tensor.
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

// Release lets the system reclaim the memory of a tensor, for callers that have made their own
// copy. A mapped tensor can still be read, from the file. The data of a rearranged tensor must not
// be read until the next call of Tensor, which copies it again to the same address, so only a
// caller that knows every reader may release it. With [OpenOptions].ReadWeights Release does
// nothing.
func (c *Checkpoint) Release(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[name]; e != nil && !c.closed && !c.read {
		release(e.Data)
		e.filled = false
	}
}

// Tensors returns all weights by name, as Stat does.
func (c *Checkpoint) Tensors() []Tensor {
	all := make([]Tensor, len(c.names))
	for i, name := range c.names {
		all[i] = c.entries[name].described()
	}
	return all
}

// Config returns the architecture. The caller must not modify it.
func (c *Checkpoint) Config() *Config { return c.config }

// Generation returns the sampling defaults of generation_config.json. It is never nil.
func (c *Checkpoint) Generation() *Generation { return c.generation }

// Path returns the path that was opened: for a folder of the Hugging Face cache, that of its
// snapshot.
func (c *Checkpoint) Path() string { return c.path }

// Format returns "safetensors" or "gguf".
func (c *Checkpoint) Format() string { return c.format }

// Size returns the size of all weights in bytes as stored, with tied embeddings counted once.
func (c *Checkpoint) Size() (bytes int64) {
	for _, e := range c.entries {
		bytes += int64(e.Bytes())
	}
	return bytes
}

// Parameters returns the number of weights, with tied embeddings counted once.
func (c *Checkpoint) Parameters() (n int64) {
	for _, e := range c.entries {
		n += int64(e.Elements())
	}
	return n
}

// Close unmaps the files. Accessing the data of a tensor afterwards ends the program. Closing again
// does nothing.
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
