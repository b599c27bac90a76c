#!/usr/bin/env bash
# Informers of the official Python client on a server of their own that is stopped, killed and started again.
#   run.sh [FERROVIRT]      the program; target/release/ferrovirt when not given
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
ferrovirt=${1:-${FERROVIRT_BIN:-$here/../../target/release/ferrovirt}}
cache=${FERROVIRT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ferrovirt}/foreign

fail() { echo "foreign: $*" >&2; exit 1; }
[ -x "$ferrovirt" ] || fail "$ferrovirt is not there; build it first: cargo build --release -p ferrovirt"
ferrovirt=$(cd "$(dirname "$ferrovirt")" && pwd)/$(basename "$ferrovirt")

# A finished environment carries the list it was made from; a half-made or older one is made again.
python=$cache/bin/python
if ! cmp -s "$here/requirements.txt" "$cache/requirements.txt" || ! "$python" -c 'import kubernetes' 2>/dev/null; then
  echo "foreign: installing $(tr '\n' ' ' <"$here/requirements.txt")into $cache" >&2
  rm -rf "$cache"
  mkdir -p "$(dirname "$cache")"
  python3 -m venv "$cache" || fail "Python 3 with venv is needed (Debian: apt-get install python3-venv)"
  "$python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt"
  cp "$here/requirements.txt" "$cache/requirements.txt"
fi

state=$(mktemp -d)
clean_up() {
  "$ferrovirt" down --state "$state" --delete >/dev/null 2>&1 || true
  rm -rf "$state"
}
trap clean_up EXIT
trap 'exit 130' INT TERM
"$ferrovirt" up --nodes 0 --state "$state" >/dev/null
"$python" "$here/informer.py" --kubeconfig "$state/kubeconfig" --ferrovirt "$ferrovirt" --state "$state"
