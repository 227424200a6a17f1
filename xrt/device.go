package xrt

import (
	"fmt"
	"runtime"
	"time"
	"unsafe"
)

// Version is the version of the XRT library.
type Version struct{ Major, Minor, Patch, Build int }

// String formats the version as XRT's tools do.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// LibraryVersion returns the version of the XRT library. It needs no device.
func LibraryVersion() (Version, error) {
	v, f := nativeVersion()
	return Version{v[0], v[1], v[2], v[3]}, fail(f, "version")
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

// Info identifies a piece of device information (xrt::info::device).
type Info int

// Arguments of Query. Most results are JSON.
const (
	InfoBDF        Info = 0 // PCI address
	InfoName       Info = 5 // device name, e.g. "NPU Strix"
	InfoElectrical Info = 8
	InfoThermal    Info = 9
	InfoMemory     Info = 11
	InfoPlatform   Info = 12 // firmware version, clocks, power mode
	InfoPCIe       Info = 13
	InfoHost       Info = 14 // versions of XRT, driver and operating system
	InfoAIE        Info = 15
)

// Query returns information about the device. It returns an error if the driver does not have it.
func (d *Device) Query(info Info) (string, error) {
	var text string
	err := d.object.do(func(ptr unsafe.Pointer) error {
		s, f := nativeDeviceText(ptr, int(info))
		text = s
		return fail(f, "device information %d", int(info))
	})
	return text, err
}

// Name returns the device name, e.g. "NPU Strix".
func (d *Device) Name() (string, error) { return d.Query(InfoName) }

// BDF returns the device's PCI address.
func (d *Device) BDF() (string, error) { return d.Query(InfoBDF) }

// AsyncError is an error that the array reported outside of any run, e.g. a core's invalid memory
// access or an aborted DMA transfer.
type AsyncError struct {
	Code uint64 // XRT's packed code; 0 if there was no error
	Time time.Time
	Text string // XRT's message
}

// LastError returns the last asynchronous error of the array. Its Code is 0 if there was none since
// the driver was loaded.
func (d *Device) LastError() (AsyncError, error) {
	const classAIE = 2 // XRT_ERROR_CLASS_AIE, the only class that the xdna driver reports
	var last AsyncError
	err := d.object.do(func(ptr unsafe.Pointer) error {
		code, us, text, f := nativeDeviceLastError(ptr, classAIE)
		last = AsyncError{Code: code, Time: time.UnixMicro(int64(us)), Text: text}
		return fail(f, "last asynchronous error")
	})
	return last, err
}
