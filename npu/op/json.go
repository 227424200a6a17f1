package op

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Marshal encodes an op as a JSON object with its kind as the only key, for example
// {"MatMul":{"M":64,"K":2048,"N":512,"TransB":true}}.
func Marshal(o Op) ([]byte, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("op: %s: %w", o.Kind(), err)
	}
	return json.Marshal(map[string]json.RawMessage{o.Kind(): body})
}

// Unmarshal decodes the output of [Marshal]. It returns an error for unknown kinds and fields and
// for invalid ops.
func Unmarshal(data []byte) (Op, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil {
		return nil, fmt.Errorf("op: want an object such as {\"MatMul\": {...}}: %w", err)
	}
	if len(object) != 1 {
		return nil, fmt.Errorf("op: want one key, the kind of the op, got %d", len(object))
	}
	for kind, body := range object {
		decode, ok := decoders[kind]
		if !ok {
			return nil, fmt.Errorf("op: unknown kind %q", kind)
		}
		o, err := decode(body)
		if err != nil {
			return nil, fmt.Errorf("op: %s: %w", kind, err)
		}
		return o, o.Validate()
	}
	panic("unreachable: the map has one key")
}

// decoders maps the kinds of all ops to their decoders.
var decoders = map[string]func([]byte) (Op, error){
	"MatMul":    decode[MatMul],
	"Embed":     decode[Embed],
	"Pick":      decode[Pick],
	"Cast":      decode[Cast],
	"RMSNorm":   decode[RMSNorm],
	"LayerNorm": decode[LayerNorm],
	"SiLUMul":   decode[SiLUMul],
	"Add":       decode[Add],
	"GELU":      decode[GELU],
	"RoPE":      decode[RoPE],
	"KVWrite":   decode[KVWrite],
	"Attention": decode[Attention],
	"Permute":   decode[Permute],
	"Slice":     decode[Slice],
	"Concat":    decode[Concat],
}

func decode[T Op](body []byte) (Op, error) {
	var o T
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(&o)
	return o, err
}
