package xdna

import (
	"errors"
	"fmt"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/xrt"
)

// kinds says what XRT's causes are among those that every kind of device has.
var kinds = []struct{ cause, kind error }{
	{xrt.ErrMemlock, npu.ErrMemory},
	{xrt.ErrMemory, npu.ErrMemory},
	{xrt.ErrTimeout, npu.ErrTimeout},
	{xrt.ErrNoContext, npu.ErrNoContext},
	{xrt.ErrAborted, npu.ErrDeviceLost},
	{xrt.ErrDeviceLost, npu.ErrDeviceLost},
	{xrt.ErrClosed, npu.ErrClosed},
}

// failure is an error of the driver with its kind, to be wrapped. XRT's own words and advice stay in it.
func failure(err error) error {
	if err == nil {
		return nil
	}
	for _, k := range kinds {
		if errors.Is(err, k.cause) {
			return fmt.Errorf("%w: %w", k.kind, err)
		}
	}
	return err
}

// lost reports whether a run failed together with its context, so that in a new one it may succeed: it was aborted, or the device reported
// an error, as it does after the machine slept. A run that made no progress would only take the time again.
func lost(err error) bool {
	return errors.Is(err, xrt.ErrAborted) || errors.Is(err, xrt.ErrFailed) || errors.Is(err, xrt.ErrDeviceLost)
}
