#!/bin/sh
# Runs a program on the emulated NPU: exec.sh SYSROOT EMULATOR PROGRAM [ARGUMENT...], as go test's -exec wants it.
#
# The program runs under the sysroot's own ld.so with its libraries, so that neither XRT nor a newer
# libc is installed. Device node and sysfs entries are a folder of the run's own, which is gone
# afterwards.
set -eu
sysroot=$1/tree
emulator=$2
shift 2
lib=$sysroot/usr/lib/x86_64-linux-gnu

dir=${TMPDIR:-/tmp}
[ ! -w /dev/shm ] || dir=/dev/shm # the node's file holds the buffers
# The names say machine and process: a run that was killed leaves its folder, which the next run of
# the same user removes.
host=$(uname -n | tr -c 'A-Za-z0-9.\n' '_')
for stale in "$dir/npuemu-$host-"*; do
	pid=${stale#"$dir/npuemu-$host-"}
	pid=${pid%%-*}
	[ -d "$stale" ] && [ -O "$stale" ] && ! kill -0 "$pid" 2>/dev/null || continue
	rm -rf "$stale"
done
NPUEMU_ROOT=$(mktemp -d "$dir/npuemu-$host-$$-XXXXXX")
trap 'rm -rf "$NPUEMU_ROOT"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
export NPUEMU_ROOT

# What XRT reads of a Strix NPU's PCI function: XRT 2.25, core/pcie/linux.
bdf=0000:c5:00.1
device=$NPUEMU_ROOT/sys/devices/pci0000:00/0000:00:08.2/$bdf
mkdir -p "$device/accel/accel0" "$NPUEMU_ROOT/sys/bus/pci/drivers/amdxdna" "$NPUEMU_ROOT/sys/bus/pci/devices" \
	"$NPUEMU_ROOT/sys/module/amdxdna" \
	"$NPUEMU_ROOT/dev/accel"
ln -s "../../../../devices/pci0000:00/0000:00:08.2/$bdf" "$NPUEMU_ROOT/sys/bus/pci/drivers/amdxdna/$bdf"
ln -s "../../../devices/pci0000:00/0000:00:08.2/$bdf" "$NPUEMU_ROOT/sys/bus/pci/devices/$bdf"
attribute() { echo "$2" >"$device/$1"; }
attribute device_type 0 # commands go through the kernel
attribute vbnv "NPU Strix"
attribute fw_version 1.1.2.64
attribute vendor 0x1022
attribute device 0x17f0
attribute revision 0x10
attribute subsystem_vendor 0x1022
attribute subsystem_device 0x17f0
: >"$NPUEMU_ROOT/dev/accel/accel0"

NPUKIT_XRT_ROOT=$sysroot
export NPUKIT_XRT_ROOT
status=0
"$lib/ld-linux-x86-64.so.2" --library-path "$lib" --preload "$emulator" "$@" || status=$?
exit $status
