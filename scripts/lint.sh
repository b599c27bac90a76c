#!/usr/bin/env bash
# The checks that need no running server: format, clippy with warnings denied, and the dependencies' licences, bans and sources.
# All of them run, so that one sees everything at once; fails when any of them does.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
cache=${FERROVIRT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ferrovirt}
failed=()

step() { # step NAME COMMAND…
  local name=$1 started=$SECONDS
  shift
  echo "lint: $name …"
  if "$@"; then echo "lint: $name is fine ($((SECONDS - started)) s)"; else failed+=("$name"); fi
}

# cargo-deny takes longer to build than everything else here together. Where it is installed it is used too, with the same deny.toml.
dependencies() {
  scripts/check-dependencies.py || return
  local deny
  deny=$(command -v cargo-deny || echo "$cache/bin/cargo-deny")
  # Advisories would have to be fetched from GitHub, which is not there everywhere.
  if [ -x "$deny" ]; then "$deny" --locked check licenses bans sources; fi
}

scripts/setup.sh lint || exit 1
step rustfmt cargo fmt --all --check
step clippy cargo clippy --locked --workspace --all-targets -- --deny warnings
step dependencies dependencies
if [ ${#failed[@]} -gt 0 ]; then
  echo "lint: not fine: ${failed[*]}" >&2
  exit 1
fi
