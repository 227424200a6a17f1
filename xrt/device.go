package xrt

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"
	"unsafe"
)

// LibraryVersion returns the version of the XRT library, such as "2.25.0". It needs no device.
func LibraryVersion() (string, error) {
	v, f := nativeVersion()
	return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]), fail(f, "version")
}

// Count returns the number of devices on this machine. It returns 0 and no error if there are none.
func Count() (int, error) {
	n, f := nativeDeviceCount()
	return n, fail(f, "count devices")
}

// Device is an NPU. An open device locks 64 MB of memory: the heap for instructions.
type Device struct{ object *object }

// Open opens the device with the given index, from 0 to Count-1. The error may be [ErrNoDevice],
// [ErrPermission] or [ErrMemlock].
func Open(index int) (*Device, error) {
	if index < 0 {
		return nil, errorf("open device %d: index must not be negative", index)
	}
	ptr, f := nativeDeviceOpen(index)
	return newDevice(ptr, f, fmt.Sprintf("open device %d", index))
}

// OpenBDF opens the device with the given PCI address, e.g. "0000:c5:00.1".
func OpenBDF(bdf string) (*Device, error) {
	ptr, f := nativeDeviceOpenBDF(bdf)
	return newDevice(ptr, f, fmt.Sprintf("open device %q", bdf))
}

func newDevice(ptr unsafe.Pointer, f *failure, op string) (*Device, error) {
	if err := fail(f, "%s", op); err != nil {
		return nil, err
	}
	d := &Device{newObject("device", ptr, nativeDeviceFree)}
	runtime.AddCleanup(d, (*object).close, d.object)
	return d, nil
}

// Close closes the device. Its resources are freed when its contexts and buffers are closed too.
func (d *Device) Close() error {
	d.object.close()
	return nil
}

// topics are the pieces of device information, with XRT's numbers (xrt::info::device).
var topics = map[string]int{
	"bdf": 0, "name": 5, "electrical": 8, "thermal": 9, "memory": 11, "platform": 12, "pcie": 13, "host": 14, "aie": 15,
}

// Query returns information about the device. The topics are bdf (its PCI address), name, electrical,
// thermal, memory, platform (firmware version, clocks, power mode), pcie, host (versions of XRT,
// driver and operating system) and aie; all but the first two are JSON. Query returns an error if the
// driver does not have the information.
func (d *Device) Query(topic string) (string, error) {
	number, ok := topics[topic]
	if !ok {
		return "", errorf("device information %q: want one of %s", topic,
			strings.Join(slices.Sorted(maps.Keys(topics)), ", "))
	}
	var text string
	err := d.object.do(func(ptr unsafe.Pointer) error {
		s, f := nativeDeviceText(ptr, number)
		text = s
		return fail(f, "device information %q", topic)
	})
	return text, err
}

// Name returns the device name, e.g. "NPU Strix".
func (d *Device) Name() (string, error) { return d.Query("name") }

// LastError returns the last asynchronous error of the array, which no run reports: a core's invalid
// memory access, for example, or an aborted DMA transfer. The text has XRT's code, the time and XRT's
// message. It is empty if there was no error since the driver was loaded.
func (d *Device) LastError() (string, error) {
	const classAIE = 2 // XRT_ERROR_CLASS_AIE, the only class that the xdna driver reports
	text := ""
	err := d.object.do(func(ptr unsafe.Pointer) error {
		code, us, message, f := nativeDeviceLastError(ptr, classAIE)
		if code != 0 {
			text = fmt.Sprintf("code %#x at %s: %s", code, time.UnixMicro(int64(us)).UTC().Format(time.RFC3339Nano),
				message)
		}
		return fail(f, "last asynchronous error")
	})
	return text, err
}
