//go:build !race

package defect_test

const raced = false
