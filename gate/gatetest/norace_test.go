//go:build !race

package gatetest_test

const raced = false
