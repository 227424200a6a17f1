// Package phasesdoc writes docs/phases.md from the phases, gates and thresholds of the code.
package phasesdoc
