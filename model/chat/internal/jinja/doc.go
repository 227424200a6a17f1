// Package jinja runs the part of Jinja2 that chat templates are written in, with the settings that transformers gives it: trim_blocks,
// lstrip_blocks, the loop controls, the immutable sandbox and a tojson that neither escapes HTML nor sorts keys.
//
// The text is tokenised by gonja; the grammar and the evaluation are here. Templates come out of files that strangers publish, so every
// evaluation is bounded (steps, bytes, depth of calls), which an evaluator has to be built for; and a chat template that renders almost
// right makes a model answer almost right, so values keep Python's types and order (a dict is ordered, 1.0 is not 1, an undefined name is
// not an empty string) and everything that is not implemented is an error that names the line, never a guess.
//
// Failures inside one evaluation travel as panics of a private type, and leave the package as errors: see [Template.Render].
package jinja
