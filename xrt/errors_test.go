package xrt

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

// Messages of XRT 2.25 and its xdna library, as seen on real machines.
func TestCause(t *testing.T) {
	for _, tc := range []struct {
		f    failure
		want error
	}{
		{failure{text: " No such device with index '0'"}, ErrNoDevice},
		{failure{code: 13, text: "Open /dev/accel/accel0 failed (err=-13): Permission denied"},
			ErrPermission},
		{failure{code: -13, text: "Open /dev/accel/accel0 failed (err=-13): Permission denied"},
			ErrPermission},
		{failure{code: 2, text: "Open /dev/accel/accel0 failed (err=-2): No such file or " +
			"directory"}, ErrNoDevice},
		{failure{code: 11, text: "mmap(addr=0x7f, len=67108864, prot=3, flags=8209, " +
			"offset=67108864) failed (err=-11): Resource temporarily unavailable"}, ErrMemlock},
		{failure{code: 2, text: "DRM_IOCTL_AMDXDNA_CREATE_HWCTX IOCTL failed (err=-2): No such " +
			"file or directory"}, ErrNoContext},
		{failure{code: 22, text: "DRM_IOCTL_AMDXDNA_CREATE_HWCTX IOCTL failed (err=-22): Invalid " +
			"argument"}, ErrNoContext},
		{failure{code: 22, text: "No such kernel 'nope': Invalid argument"}, ErrNoKernel},
		{failure{text: "Unable to find group idx for given kernel: main:nope"}, ErrNoKernel},
		{failure{code: 19, text: "DRM_IOCTL_AMDXDNA_EXEC_CMD IOCTL failed (err=-19): No such " +
			"device"}, ErrDeviceLost},
		{failure{state: 8, run: 3, text: "runlist failed execution (ERT_CMD_STATE_TIMEOUT)"}, ErrTimeout},
		{failure{state: 6, run: -1, text: "Command failed to complete successfully " +
			"(ERT_CMD_STATE_ABORT)\n"}, ErrAborted},
		{failure{state: 5, run: -1, text: "Command failed to complete successfully " +
			"(ERT_CMD_STATE_ERROR)\n"}, ErrFailed},
		{failure{code: 12, text: "DRM_IOCTL_AMDXDNA_CREATE_BO IOCTL failed (err=-12): Cannot " +
			"allocate memory"}, ErrMemory},
		{failure{code: 12, text: "out of memory"}, ErrMemory},
		{failure{code: 12, text: "out of memory"}, syscall.Errno(12)},
	} {
		err := fail(&tc.f, "try %d", 1)
		if !errors.Is(err, tc.want) {
			t.Errorf("%q: %v, want %v", tc.f.text, err, tc.want)
		}
		if text := strings.TrimSpace(tc.f.text); !strings.HasPrefix(err.Error(), "xrt: try 1: "+text) {
			t.Errorf("%q: XRT's message is not in %q", text, err)
		}
		if e := new(Error); !errors.As(err, &e) || e.State != stateOf(tc.f.state) ||
			(tc.f.state != 0 && e.Run != tc.f.run) {
			t.Errorf("%q: %+v", tc.f.text, e)
		}
	}
	if err := fail(nil, "try"); err != nil {
		t.Errorf("no failure: %v", err)
	}
}

func TestStates(t *testing.T) {
	if s := stateOf(0); s != "" {
		t.Errorf("state 0 is %q, want none", s)
	}
	for n := -1; n < 10; n++ {
		want := n >= 4 && n != 7
		if s := stateOf(n); isFinal(n) != want || s == "" && n != 0 {
			t.Errorf("%d is %q: final %v", n, s, isFinal(n))
		}
	}
}
