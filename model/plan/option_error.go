package plan

import "fmt"

// OptionError is an option or argument that a caller must change. A server answers it with "bad request".
type OptionError struct {
	Field string // such as "GenerateOptions.MaxTokens", "Sampling.TopP" or "Prompt.IDs[3]"
	Value any
	Want  string // what it must be
}

func (e *OptionError) Error() string {
	value := e.Value
	if value == nil {
		value = "nil"
	}
	return fmt.Sprintf("model: %s is %v, want %s", e.Field, value, e.Want)
}
