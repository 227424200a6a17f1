package model

import (
	"bytes"
	"testing"

	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model/checkpoint"
)

// Opening gives back the memory of blocks that the device has copied. Whoever asks the checkpoint for a tensor afterwards gets what the file says, of
// rearranged ones too. That floats which are read in place stay, TestStories shows: it computes with them.
func TestOpeningLeavesTensorsAsTheyAre(t *testing.T) {
	path := testenv.DemoModel(t)
	m := open(t, path, "", nil)
	fresh, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	rearranged := 0
	for _, listed := range fresh.Tensors() {
		want, err := fresh.Tensor(listed.Name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.Checkpoint().Tensor(listed.Name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Data, want.Data) {
			t.Errorf("%s differs from the file's", listed.Name)
		}
		if !got.Mapped {
			rearranged++
		}
	}
	if rearranged == 0 {
		t.Error("no tensor is rearranged, so this proves little")
	}
}
