// Package sim is a virtual XDNA 2: a device that runs NPU programs without the chip, with the chip's numbers, limits, clock and coherency.
package sim
