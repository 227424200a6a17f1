package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/npukit/npukit/internal/readfile"

	"github.com/edsrzf/mmap-go"
)

// maxJSON bounds the JSON files that are read into memory. The largest is tokenizer_config.json,
// with up to a few MB.
const maxJSON = 64 << 20

// readJSON decodes a JSON file of a checkpoint folder.
func readJSON(file string, v any) error {
	b, err := readText(file)
	if err != nil {
		return err
	}
	return decodeJSON(file, b, v)
}

// utf8BOM is the byte order mark that some editors write at the start of a file. JSON has none.
var utf8BOM = []byte("\ufeff")

// readText reads a small file.
func readText(file string) ([]byte, error) {
	f, _, err := openRegular(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxJSON+1))
	if err != nil {
		return nil, &Error{File: file, Problem: "cannot be read", Err: err}
	}
	if len(b) > maxJSON {
		return nil, fileErrorf(file, "is larger than %d MB, more than any valid one", maxJSON>>20)
	}
	if err := checkPointer(file, b); err != nil {
		return nil, err
	}
	return b, nil
}

// decodeJSON is json.Unmarshal with errors that name the field and both types.
func decodeJSON(file string, b []byte, v any) error {
	b = bytes.TrimPrefix(b, utf8BOM)
	err := json.Unmarshal(b, v)
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong):
		where := fmt.Sprintf("field %q", wrong.Field)
		if wrong.Field == "" {
			where = "the content"
		}
		return fileErrorf(file, "%s is a JSON %s, expected %s", where, wrong.Value, kindName(wrong.Type))
	case errors.As(err, &syntax):
		before := b[:min(int(syntax.Offset), len(b))]
		return &Error{File: file, Problem: fmt.Sprintf("is not valid JSON, line %d",
			bytes.Count(before, []byte("\n"))+1), Err: err}
	}
	return &Error{File: file, Problem: "is not valid JSON", Err: err}
}

func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int:
		return "an integer"
	case reflect.Float64:
		return "a number"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	}
	return "a " + t.String()
}

// openRegular opens a regular file. Opening a pipe or device could block forever.
func openRegular(file string) (*os.File, int64, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, 0, fmt.Errorf("checkpoint: %w", err)
	}
	if info.IsDir() {
		return nil, 0, fileErrorf(file, "is a folder, expected a file")
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fileErrorf(file, "is not a regular file")
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, 0, fmt.Errorf("checkpoint: %w", err)
	}
	return f, info.Size(), nil
}

// mapFile maps a file for reading. Pages are read at first use.
func mapFile(file string) (mmap.MMap, error) {
	f, size, err := openRegular(file)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the mapping stays
	if err := checkSize(file, size); err != nil {
		return nil, err
	}
	m, err := mmap.MapRegion(f, int(size), mmap.RDONLY, 0, 0)
	if err != nil {
		return nil, &Error{File: file, Problem: "cannot be mapped into memory", Err: err}
	}
	return notPointer(file, m)
}

// loadFile reads a file into memory outside the Go heap.
func loadFile(file string) (mmap.MMap, error) {
	f, size, err := openRegular(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := checkSize(file, size); err != nil {
		return nil, err
	}
	m, err := allocate(int(size))
	if err != nil {
		return nil, err
	}
	if n, err := io.ReadFull(f, m); err != nil {
		_ = m.Unmap()
		problem := fmt.Sprintf("cannot be read: it ended after %[2]d of %[1]d bytes", size, n)
		return nil, &Error{File: file, Problem: problem, Err: err}
	}
	return notPointer(file, m)
}

func checkSize(file string, size int64) error {
	if size == 0 {
		return fileErrorf(file, "is empty: was the download interrupted?")
	}
	if int64(int(size)) != size {
		return fileErrorf(file, "has %d bytes, which do not fit this machine's address space", size)
	}
	return nil
}

// notPointer returns an error if the mapping is a Git LFS pointer.
func notPointer(file string, m mmap.MMap) (mmap.MMap, error) {
	if err := checkPointer(file, m); err != nil {
		_ = m.Unmap()
		return nil, err
	}
	return m, nil
}

// checkPointer returns an error if the content of a file is a Git LFS pointer.
func checkPointer(file string, content []byte) error {
	if err := readfile.CheckPointer(content); err != nil {
		return fileErrorf(file, "is %v", err)
	}
	return nil
}

// allocate returns n bytes outside the Go heap, so that C code may keep pointers into them.
func allocate(n int) (mmap.MMap, error) {
	m, err := mmap.MapRegion(nil, n, mmap.COPY, mmap.ANON, 0)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: out of memory: cannot allocate %d bytes: %w", n, err)
	}
	return m, nil
}

// explainFolder returns the error of a folder that is not a Hugging Face checkpoint, with advice.
// missing is the file that was expected.
func explainFolder(dir, missing string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	var gguf, tensors, cached []string
	var meta, torch bool
	for _, e := range entries {
		name := e.Name()
		switch {
		case strings.HasPrefix(name, hubPrefix):
			cached = append(cached, name)
		case strings.HasSuffix(name, ".gguf"):
			gguf = append(gguf, name)
		case strings.HasSuffix(name, ".pth") || name == "params.json" || name == "original":
			meta = true
		case strings.HasPrefix(name, "pytorch_model") && (strings.HasSuffix(name, ".bin") ||
			strings.HasSuffix(name, ".json")):
			torch = true
		case strings.HasSuffix(name, ".safetensors"):
			tensors = append(tensors, name)
		}
	}
	layout := "a Hugging Face folder has config.json, model.safetensors (or shards with " +
		"model.safetensors.index.json) and tokenizer.json"
	why := layout
	switch {
	case torch:
		why = fmt.Sprintf("the weights are PyTorch pickles (pytorch_model*.bin), which can run code when read and "+
			"are not supported. Convert them with "+
			"transformers: AutoModelForCausalLM.from_pretrained(%q).save_pretrained(...) writes safetensors", dir)
	case meta:
		why = "the folder has Meta's layout (consolidated.*.pth, params.json, original/tokenizer.model), but " +
			layout + ". They come from the " +
			"model's page on huggingface.co, outside its folder original/, or from transformers' " +
			"convert_llama_weights_to_hf.py"
	case len(gguf) > 0:
		why = fmt.Sprintf("the folder has GGUF files (%d): give the path of one, for example %s", len(gguf),
			filepath.Join(dir, gguf[0]))
	case len(cached) > 0:
		why = fmt.Sprintf("this is a Hugging Face cache (%d models): give the path of one, for example %s",
			len(cached), filepath.Join(dir, cached[0]))
	case len(tensors) > 0:
		why = fmt.Sprintf("the folder has %s, but %s", strings.Join(tensors[:min(3, len(tensors))], ", "), layout)
	}
	return &Error{File: filepath.Join(dir, missing), Problem: fmt.Sprintf("not found in %s: %s", dir, why),
		Err: os.ErrNotExist}
}
