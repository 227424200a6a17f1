#!/bin/sh
# Measures npukit beside llama.cpp on this machine: what `make bench-peer` runs. Makes what it needs
# once, in npukit's cache (7 GB).
#
#   [KERNELS=NAME] [REPS=1] sh scripts/peer/run.sh bin/npukit [ROUNDS] [MODEL...]
#
# Models: 135m-bf16 135m-q4_1 1b-bf16 (the default), 1b-q8_0 1b-q4_0 1b-q4_k_m 1b-q6_k.
set -eu

npukit=$1
rounds=${2:-5}
shift $(($# > 2 ? 2 : $#))
[ $# -gt 0 ] || set -- 135m-bf16 135m-q4_1 1b-bf16

here=$(dirname "$0")
cache=$(sh "$here/../cache-dir.sh")/peer
case $cache in
*[[:space:],]*)
	echo "peer: the cache folder's name has a space or a comma: $cache (set NPUKIT_CACHE to another)" >&2
	exit 2
	;;
esac
venv=$(sh "$here/setup.sh")
python="$venv/bin/python -B"
small=$cache/SmolLM2-135M-Instruct-BF16
large=$cache/llama-1b
demo=$(sh "$here/../fetch-smollm2.sh")

pairs=
for model in "$@"; do
	case $model in
	135m-bf16)
		[ -e "$small/bf16.gguf" ] || $python "$here/convert.py" "$demo" "$small" >&2
		pair=$small/hf,$small/bf16.gguf
		;;
	135m-q4_1)
		pair=$demo,$demo
		;;
	1b-*)
		[ -e "$large/hf/model.safetensors" ] || $python "$here/random_llama.py" "$large" >&2
		type=$(echo "${model#1b-}" | tr a-z A-Z)
		if [ "$type" = BF16 ]; then
			pair=$large/hf,$large/bf16.gguf
		else
			file=$large/$type.gguf
			[ -e "$file" ] || $python "$here/quantize.py" "$large/bf16.gguf" "$file" "$type" >&2
			pair=$file,$file
		fi
		;;
	*)
		echo "peer: no model $model" >&2
		exit 2
		;;
	esac
	pairs="$pairs $model=$pair"
done
mkdir -p bin
# shellcheck disable=SC2086 # python and pairs are words
exec $python "$here/compare.py" --npukit "$npukit" --rounds "$rounds" --reps "${REPS:-1}" \
	${KERNELS:+--kernels "$KERNELS"} --json bin/bench-peer.json $pairs
