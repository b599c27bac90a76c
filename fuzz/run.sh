#!/usr/bin/env bash
# Runs every fuzz target for a while: fuzz/run.sh [SECONDS] [TARGET...]
# Only builds them:                   fuzz/run.sh build
#
# Needs a nightly compiler and cargo-fuzz; what is missing is installed (cargo-fuzz into the cache, which takes a minute).
# A target that crashes, hangs or eats its memory fails; the input is kept in fuzz/artifacts/TARGET.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
seconds=${1:-60}
[ $# -gt 0 ] && shift
cache=${FERROVIRT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ferrovirt}
fuzz_version=0.13.2

not_run() {
  echo "fuzz: NOT RUN: $1" >&2
  exit 1
}

command -v cargo >/dev/null || not_run "there is no cargo"
if ! cargo +nightly --version >/dev/null 2>&1; then
  command -v rustup >/dev/null || not_run "there is no nightly compiler, and no rustup to get one with"
  echo "fuzz: installing the nightly compiler (libFuzzer's instrumentation needs it)"
  rustup toolchain install nightly --profile minimal --no-self-update || not_run "the nightly compiler cannot be installed"
fi
fuzz=$(command -v cargo-fuzz || echo "$cache/bin/cargo-fuzz")
if [ ! -x "$fuzz" ]; then
  echo "fuzz: building cargo-fuzz $fuzz_version (a minute, and only once: it stays in $cache/bin)"
  cargo install --quiet --locked --root "$cache" --version "$fuzz_version" cargo-fuzz || not_run "cargo-fuzz cannot be built"
fi

if [ $# -gt 0 ]; then targets=("$@"); else mapfile -t targets < <(cd fuzz_targets && ls -- *.rs | sed 's/\.rs$//'); fi
# Our crates forbid unsafe code, so the address sanitizer would only make everything slower.
options=(--fuzz-dir . --sanitizer none)
echo "fuzz: building ${#targets[@]} targets"
"$fuzz" build "${options[@]}" >/dev/null || not_run "the targets cannot be built"
[ "$seconds" != build ] || exit 0

# A change is judged by itself and not by luck: CI always begins with the same inputs, everyone else with new ones.
seed=${FUZZ_SEED:-${CI:+1}}
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

run_target() {
  local target=$1 dictionary
  case $target in
    request) dictionary=request ;;
    selectors) dictionary=selector ;;
    *) dictionary=json ;;
  esac
  mkdir -p "corpus/$target" "artifacts/$target"
  if "$fuzz" run "${options[@]}" "$target" "corpus/$target" "seeds/$target" -- \
    -seed="${seed:-0}" -max_total_time="$seconds" -dict="dictionaries/$dictionary.dict" -max_len=65536 -timeout=20 -rss_limit_mb=3072 >"$logs/$target" 2>&1; then
    echo "fuzz: $target passed: $(grep -aoE 'Done [0-9]+ runs' "$logs/$target" | tail -1 | tr 'D' 'd')"
  else
    echo "fuzz: $target FAILED; the end of its output:"
    tail -n 40 "$logs/$target"
    touch "$logs/$target.failed"
  fi
}

# A target uses one processor.
for target in "${targets[@]}"; do
  while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
  run_target "$target" &
done
wait
failed=$(find "$logs" -name '*.failed' | wc -l) passed=$((${#targets[@]} - $(find "$logs" -name '*.failed' | wc -l)))
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
