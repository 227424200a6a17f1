#!/bin/sh
# Makes a Python environment with llama.cpp (through llama-cpp-python) in npukit's cache, to measure
# against, and prints its folder. llama.cpp is compiled here, for this CPU: about 4 minutes on 2
# cores. Done once: repeated, it only prints.
set -eu

version=0.3.36
venv=$(sh "$(dirname "$0")/../cache-dir.sh")/peer/venv
python=$venv/bin/python

if [ "$("$python" -c 'import llama_cpp, gguf; print(llama_cpp.__version__)' 2>/dev/null)" = "$version" ]; then
	echo "$venv"
	exit 0
fi
python3 -m venv "$venv" || {
	echo "peer: cannot make a Python environment in $venv: is python3-venv installed?" >&2
	exit 1
}

# Compiled for "this" CPU, llama.cpp uses AMX where the CPU announces it, for quantised products
# alone. Compiled so with GCC 12.2, on a Xeon whose AMX works, this version ends with a segmentation
# fault at the first of them (Q4_1, Q4_K and Q8_0 were tried), and its BF16 products are as fast as
# without. So there the instruction sets are named one by one, without AMX. Every CPU with AMX has
# these. Wheels that pip has kept may have been compiled for others.
if grep -qw amx_tile /proc/cpuinfo 2>/dev/null; then
	CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON"
	CMAKE_ARGS="$CMAKE_ARGS -DGGML_AVX512=ON -DGGML_AVX512_BF16=ON -DGGML_AVX512_VNNI=ON"
	export CMAKE_ARGS
	echo "peer: this CPU announces AMX: compiling llama.cpp without it" >&2
fi
echo "peer: compiling llama.cpp into $venv (minutes)" >&2
nice -n 10 "$venv/bin/pip" install --no-cache-dir --disable-pip-version-check --quiet \
	"llama-cpp-python==$version" gguf==0.19.0 >&2
echo "$venv"
