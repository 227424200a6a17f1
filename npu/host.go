package npu

// Hosted is a device whose plans also have steps on the host, such as embedding and attention over
// the KV cache. Host returns the device for them, which takes any number of rows.
type Hosted interface {
	Device
	Host() Device
}

// HostVisible is a buffer of a hosted device. HostBuffer returns its host side, for programs of the
// host; their writes reach the device with Sync, like other host writes.
type HostVisible interface {
	Buffer
	HostBuffer() Buffer
}

// HostOf returns the device for a plan's host steps: d.Host() if d is hosted, otherwise d.
func HostOf(d Device) Device {
	if h, ok := d.(Hosted); ok {
		return h.Host()
	}
	return d
}

// HostBuffer returns the buffer that a host program uses for b: b.HostBuffer() if b has one,
// otherwise b.
func HostBuffer(b Buffer) Buffer {
	if h, ok := b.(HostVisible); ok {
		return h.HostBuffer()
	}
	return b
}
