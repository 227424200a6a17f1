package xdna

import (
	"errors"
	"fmt"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/xrt"
)

// kinds maps XRT errors to the errors that all devices share.
var kinds = []struct{ cause, kind error }{
	{xrt.ErrMemlock, npu.ErrMemory},
	{xrt.ErrMemory, npu.ErrMemory},
	{xrt.ErrTimeout, npu.ErrTimeout},
	{xrt.ErrNoContext, npu.ErrNoContext},
	{xrt.ErrAborted, npu.ErrDeviceLost},
	{xrt.ErrDeviceLost, npu.ErrDeviceLost},
	{xrt.ErrClosed, npu.ErrClosed},
}

// failure wraps a driver error with its npu error, if it has one. XRT's message and advice are
// kept.
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

// retryable reports whether a run may succeed in a new context: it was aborted, or the device
// reported an error, e.g. after the machine was suspended. A timeout is not retryable, because the
// retry would take as long again.
func retryable(err error) bool {
	return errors.Is(err, xrt.ErrAborted) || errors.Is(err, xrt.ErrFailed) ||
		errors.Is(err, xrt.ErrDeviceLost)
}
