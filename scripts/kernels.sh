#!/bin/sh
# Runs the short tests of the packages that compute on npu/cpu with each set of its kernels that this
# machine can execute, as though it could execute no more. More arguments go to go test. Packages
# whose numbers do not come from npu/cpu (npu/dtype, oracle), or whose tests open every set of kernels
# themselves (internal/defect), have nothing to add here.
set -eu
cd "$(dirname "$0")/.."

packages="./npu/cpu ./npu/sim ./gate ./gate/gatetest ./model"

kernels=$(env -u NPUKIT_KERNELS go run ./internal/cpukernels)
# shellcheck disable=SC2086 # names are words, and so are packages
set -- $packages "$@"
for name in $kernels; do
	echo "kernels: $name"
	NPUKIT_KERNELS=$name go test -short -timeout 15m "$@"
done
echo "kernels: all passed with" $kernels
