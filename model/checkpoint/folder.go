package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// openFolder opens a Hugging Face folder.
func (c loader) openFolder() error {
	c.format = "safetensors"
	configFile := filepath.Join(c.path, "config.json")
	config, err := readConfig(configFile, &c.warnings)
	if errors.Is(err, os.ErrNotExist) {
		return explainFolder(c.path, "config.json")
	}
	if err != nil {
		return err
	}
	c.config = config
	config.Name = Name(c.path)
	c.generation, err = readGeneration(filepath.Join(c.path, "generation_config.json"), config.Vocab, &c.warnings)
	if err != nil {
		return err
	}
	if c.generation.BOS != nil {
		config.BOS = c.generation.BOS
	}
	ends := config.EOS
	config.EOS = nil
	c.addEnds("generation_config.json", c.generation.EOS)
	c.addEnds("config.json", ends)
	if err := c.text.readFolder(c.path); err != nil {
		return err
	}

	single := filepath.Join(c.path, "model.safetensors")
	var found []stored
	if _, err := os.Stat(single); err == nil {
		found, err = c.readFile(single)
		if err != nil {
			return err
		}
	} else if found, single, err = c.readShards(); err != nil {
		return err
	}
	tensors, err := match(config, found, single, "config.json")
	if err != nil {
		return err
	}
	c.adopt(tensors, func(string) int { return 0 })
	return nil
}

func (c loader) readFile(file string) ([]stored, error) {
	m, err := c.mapFile(file)
	if err != nil {
		return nil, err
	}
	return readSafetensors(file, m)
}

// readShards reads the files of the index, and also returns the path of the index. Index and shards
// must agree on every tensor: a difference means that files of two models or revisions were mixed.
func (c loader) readShards() ([]stored, string, error) {
	index := filepath.Join(c.path, "model.safetensors.index.json")
	text, err := readText(index)
	if errors.Is(err, os.ErrNotExist) {
		return nil, "", explainFolder(c.path, "model.safetensors")
	}
	if err != nil {
		return nil, "", err
	}
	var h struct {
		WeightMap map[string]string `json:"weight_map"` // tensor -> file
	}
	if err := decodeJSON(index, text, &h); err != nil {
		return nil, "", err
	}
	if name, err := duplicateKey(bytes.TrimPrefix(text, utf8BOM)); err != nil || name != "" {
		return nil, "", &Error{File: index, Problem: fmt.Sprintf("has the key %q twice", name), Err: err}
	}
	if len(h.WeightMap) == 0 {
		return nil, "", fileErrorf(index, "has no weight_map, the list of files")
	}
	var shards []string
	for _, shard := range h.WeightMap {
		shards = append(shards, shard)
	}
	slices.Sort(shards)
	shards = slices.Compact(shards)

	// Check all names before opening any file: an index must not reach outside its folder.
	for _, shard := range shards {
		if !filepath.IsLocal(shard) || strings.ContainsAny(shard, `/\`) || !strings.HasSuffix(shard, ".safetensors") {
			return nil, "", fileErrorf(index, "names the file %q; shards are *.safetensors files in the same folder",
				shard)
		}
	}
	var absent []string
	for _, shard := range shards {
		if _, err := os.Stat(filepath.Join(c.path, shard)); err != nil {
			absent = append(absent, shard)
		}
	}
	if len(absent) > 0 {
		problem := fmt.Sprintf("%d of its %d files are missing, first %s: was the download "+
			"interrupted?",
			len(absent), len(shards), absent[0])
		return nil, "", &Error{File: index, Problem: problem, Err: os.ErrNotExist}
	}
	var found []stored
	for _, shard := range shards {
		tensors, err := c.readFile(filepath.Join(c.path, shard))
		if err != nil {
			return nil, "", err
		}
		for _, s := range tensors {
			switch in := h.WeightMap[s.name]; in {
			case shard:
			case "":
				return nil, "", s.errorf("is missing in %s", filepath.Base(index))
			default:
				return nil, "", s.errorf("should be in %s according to %s", in, filepath.Base(index))
			}
		}
		found = append(found, tensors...)
	}
	if len(found) < len(h.WeightMap) {
		have := map[string]bool{}
		for _, s := range found {
			have[s.name] = true
		}
		for name, shard := range h.WeightMap {
			if !have[name] {
				problem := fmt.Sprintf("is missing, although %s lists it", filepath.Base(index))
				return nil, "", &Error{File: filepath.Join(c.path, shard), Tensor: name, Problem: problem}
			}
		}
	}
	return found, index, nil
}
