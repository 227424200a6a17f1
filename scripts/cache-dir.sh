#!/bin/sh
# Prints npukit's cache folder: $NPUKIT_CACHE, else npukit in the user's cache folder, which is
# where Go's os.UserCacheDir says, so that the command, the tests and these scripts look in the same
# place.
set -eu

case $(uname -s) in
Darwin) user=${HOME:+$HOME/Library/Caches} ;;
MINGW* | MSYS* | CYGWIN*) user=${LOCALAPPDATA:-} ;;
*) user=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}} ;;
esac
cache=${NPUKIT_CACHE:-${user:+$user/npukit}}
case $cache in
/* | [A-Za-z]:*) echo "$cache" ;;
'') echo "no cache folder: set NPUKIT_CACHE to one" >&2 && exit 1 ;;
*) echo "the cache folder is a relative path: $cache (set NPUKIT_CACHE to an absolute one)" >&2 && exit 1 ;;
esac
