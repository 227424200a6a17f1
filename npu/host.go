package npu

// Hosted is a device whose plans also have steps on the host: embedding, the KV cache, attention over it. Its host is a device for them that takes any
// number of rows.
type Hosted interface {
	Device
	Host() Device
}

// HostVisible is a buffer of a hosted device whose host side the host's own programs can be given. What they write there reaches the device with Sync, as
// whatever else the host writes.
type HostVisible interface {
	Buffer
	HostBuffer() Buffer
}

// HostOf is the device that executes a plan's host steps: the one that a hosted device names, and any other device itself.
func HostOf(d Device) Device {
	if h, ok := d.(Hosted); ok {
		return h.Host()
	}
	return d
}

// HostBuffer is what a program on the host is given for a buffer of the device.
func HostBuffer(b Buffer) Buffer {
	if h, ok := b.(HostVisible); ok {
		return h.HostBuffer()
	}
	return b
}
