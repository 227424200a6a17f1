package checkpoint

func (c *Checkpoint) openGGUF([]byte) error {
	return &UnsupportedError{File: c.path, Feature: "GGUF", Supported: "so far Hugging Face folders are read"}
}
