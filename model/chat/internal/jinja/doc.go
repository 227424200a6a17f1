// Package jinja renders Jinja2 chat templates as Jinja2 3.1.6 does in the environment of
// transformers: trim_blocks, lstrip_blocks, loop controls, {% generation %}, the immutable
// sandbox, and a tojson that neither escapes HTML nor sorts keys.
//
// Values keep Python's types and order, because a prompt that is almost right makes a model answer
// almost right. A construct that is not supported is an error that names its line.
//
// Every string knows which of its bytes are message content, through all filters, methods and
// operators; see [Text].
//
// Templates are untrusted input. Parsing bounds size and nesting; rendering bounds steps, time,
// memory and depth. Errors inside one rendering travel as panics of a private type and leave the
// package as errors.
package jinja
