# shellcheck shell=bash
# Sourced by what runs tests: work beside other work, with what that leaves of the processors. The caller has `work`, a directory of its own.
besides=()

# A session of its own: nothing of it is left when the caller is interrupted, and Linux shares processors between sessions (autogroup), so
# that being nice counts within one only.
beside() { # beside NAME COMMAND…: its output comes at the end
  local name=$1
  shift
  setsid bash -c '
    { echo 19 >/proc/self/autogroup; } 2>/dev/null
    SECONDS=0 status=0
    nice -n 19 "${@:3}" >"$1/$2.log" 2>&1 || status=$?
    echo "$status $SECONDS" >"$1/$2.status"' beside "$work" "$name" "$@" </dev/null &
  echo $! >"$work/$name.group"
  besides+=("$name")
}
collect() { # collect FUNCTION: waits for all of them, and calls FUNCTION NAME STATUS SECONDS LOG for each
  local name status seconds
  for name in "${besides[@]}"; do
    # One that was killed has left no status.
    status= seconds=
    wait "$(cat "$work/$name.group")"
    read -r status seconds 2>/dev/null <"$work/$name.status"
    "$1" "$name" "${status:-1}" "${seconds:-0}" "$work/$name.log"
  done
  besides=()
}
end_besides() {
  local name
  for name in "${besides[@]}"; do kill -TERM -- "-$(cat "$work/$name.group")" 2>/dev/null; done
}
