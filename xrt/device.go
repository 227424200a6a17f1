package xrt

import (
	"fmt"
	"runtime"
	"time"
	"unsafe"
)

// Version is the version of the XRT library that the program runs with.
type Version struct{ Major, Minor, Patch, Build int }

// String is the version as XRT's own tools print it.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// LibraryVersion asks the XRT library for its version. It needs no device.
func LibraryVersion() (Version, error) {
	v, f := nativeVersion()
	return Version{v[0], v[1], v[2], v[3]}, fail(f, "version")
}

// Count is the number of devices that XRT finds on this machine. None is 0 and no error.
func Count() (int, error) {
	n, f := nativeDeviceCount()
	return n, fail(f, "count devices")
}

// Device is an NPU. Opening one locks 64 MB of memory, the heap that instructions live in.
type Device struct{ object *object }

// Open opens the device with an index from 0 to Count-1. Errors: [ErrNoDevice], [ErrPermission], [ErrMemlock].
func Open(index int) (*Device, error) {
	if index < 0 {
		return nil, errorf("open device %d: an index starts at 0", index)
	}
	ptr, f := nativeDeviceOpen(index)
	return newDevice(ptr, f, fmt.Sprintf("open device %d", index))
}

// OpenBDF opens the device with a PCI address such as "0000:c5:00.1".
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

// Close gives the device back once its contexts and buffers are closed too.
func (d *Device) Close() error {
	d.object.close()
	return nil
}

// Info is one of the things that a device tells about itself (xrt::info::device).
type Info int

// What Query answers. Most answers are JSON.
const (
	InfoBDF        Info = 0 // PCI address
	InfoName       Info = 5 // name of the processor's NPU, "NPU Strix"
	InfoElectrical Info = 8
	InfoThermal    Info = 9
	InfoMemory     Info = 11
	InfoPlatform   Info = 12 // firmware version, clocks, power mode
	InfoPCIe       Info = 13
	InfoHost       Info = 14 // versions of XRT, driver and operating system
	InfoAIE        Info = 15
)

// Query asks the device about itself. What a driver does not know is an error.
func (d *Device) Query(what Info) (string, error) {
	var text string
	err := d.object.do(func(ptr unsafe.Pointer) error {
		s, f := nativeDeviceText(ptr, int(what))
		text = s
		return fail(f, "device information %d", int(what))
	})
	return text, err
}

// Name is the device's name, "NPU Strix".
func (d *Device) Name() (string, error) { return d.Query(InfoName) }

// BDF is the device's PCI address.
func (d *Device) BDF() (string, error) { return d.Query(InfoBDF) }

// AsyncError is an error that the array reported outside of any run: a core that accessed memory it has not, a DMA that broke off.
type AsyncError struct {
	Code uint64 // XRT's packed code; 0: there was none
	Time time.Time
	Text string // in XRT's words
}

// LastError is the last asynchronous error of the array; its Code is 0 when there was none since the driver was loaded.
func (d *Device) LastError() (AsyncError, error) {
	const classAIE = 2 // XRT_ERROR_CLASS_AIE, the only class that the xdna driver fills
	var last AsyncError
	err := d.object.do(func(ptr unsafe.Pointer) error {
		code, us, text, f := nativeDeviceLastError(ptr, classAIE)
		last = AsyncError{Code: code, Time: time.UnixMicro(int64(us)), Text: text}
		return fail(f, "last asynchronous error")
	})
	return last, err
}
