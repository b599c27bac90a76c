#!/usr/bin/env bash
# The checks that need no running server: format, clippy with warnings denied, and the dependencies' licences, bans and sources.
# All of them run, so that one sees everything at once; fails when any of them does.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
cache=${FERROVIRT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ferrovirt}
deny_version=0.20.2
failed=()

step() { # step NAME COMMAND…
  local name=$1 started=$SECONDS
  shift
  echo "lint: $name …"
  if "$@"; then echo "lint: $name is fine ($((SECONDS - started)) s)"; else failed+=("$name"); fi
}

# It runs for a second, so it is not worth optimising: that would triple the time of its build.
install_deny() {
  echo "lint: building cargo-deny $deny_version (for the dependency check; minutes, and only once: it stays in $cache/bin)"
  CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
    cargo install --quiet --locked --root "$cache" --version "$deny_version" cargo-deny
}
dependencies() {
  local deny
  deny=$(command -v cargo-deny || echo "$cache/bin/cargo-deny")
  [ -x "$deny" ] || install_deny || return
  # Advisories would have to be fetched from GitHub, which is not within reach everywhere.
  "$deny" --locked check licenses bans sources
}

scripts/setup.sh lint || exit 1
step rustfmt cargo fmt --all --check
step clippy cargo clippy --locked --workspace --all-targets -- --deny warnings
# The fuzz targets are a workspace of their own, since only a nightly compiler can run them.
step "fuzz targets" cargo clippy --locked --manifest-path fuzz/Cargo.toml -- --deny warnings
step dependencies dependencies
if [ ${#failed[@]} -gt 0 ]; then
  echo "lint: not fine: ${failed[*]}" >&2
  exit 1
fi
