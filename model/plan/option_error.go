package plan

import "fmt"

// OptionError reports an option or argument that the caller must change. A server answers it with
// status 400. Package model has it under the same name, and its text begins with that name, because
// callers set plan options in the options of model.Open.
type OptionError struct {
	Field string // such as "GenerateOptions.MaxTokens", "Sampling.TopP" or "Prompt.IDs[3]"
	Value any
	Want  string // the values that are valid
}

func (e *OptionError) Error() string {
	value := e.Value
	if value == nil {
		value = "nil"
	}
	return fmt.Sprintf("model: %s is %v, want %s", e.Field, value, e.Want)
}
