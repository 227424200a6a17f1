#!/bin/sh
# Runs the short tests of the kernels' results for arm64 on qemu-user, which emulates a CPU with every
# Arm extension. `make test-arm64` runs it. It shows that results are right, and nothing about speed.
#
#   sh scripts/arm64.sh [REGEXP]       tests to run; by default products, attention, norms and weights
set -eu

cc=aarch64-linux-gnu-gcc
for tool in $cc qemu-aarch64; do
	command -v $tool >/dev/null || {
		echo "test-arm64: no $tool (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)" >&2
		exit 1
	}
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$(dirname "$0")/../npu/cpu"
GOARCH=arm64 CGO_ENABLED=1 CC=$cc go test -c -o "$folder/cpu.test" .
qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu "$folder/cpu.test" -test.short -test.timeout 30m \
	-test.run "${1:-MatMul|Product|Attention|Norm|RoPE|Group|Layout|Embed|BF12}"
