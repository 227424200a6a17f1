package cpu

// regroup fills groups first to last-1 of a weight from the matrix as it lies in a file, one block after the other.
func (e *goEngine) regroup(w *groupedWeight, data []byte, first, last int) {
	for g := first; g < last; g++ {
		w.fill(g, data)
	}
}
