# shellcheck shell=bash
# Sourced by what runs tests: work beside other work, with less of the processors than that. The caller has `work`, a directory of its own.
besides=()
# A third of what others get, who wait most of the time. With much less it would not come to an end on a machine that is busy with something else.
niceness=5

# A session of its own: nothing of it is left when the caller is interrupted, and Linux shares processors between sessions (autogroup), so
# that being nice counts within one only.
beside() { # beside NAME COMMAND…: its output comes at the end
  local name=$1
  shift
  setsid bash -c '
    { echo "$1" >/proc/self/autogroup; } 2>/dev/null
    SECONDS=0 status=0
    nice -n "$1" "${@:4}" >"$2/$3.log" 2>&1 || status=$?
    echo "$status $SECONDS" >"$2/$3.status"' beside $niceness "$work" "$name" "$@" </dev/null &
  echo $! >"$work/$name.group"
  besides+=("$name")
}
collect() { # collect FUNCTION: waits for all of them, and calls FUNCTION NAME STATUS SECONDS LOG for each
  local name group status seconds
  for name in "${besides[@]}"; do
    # One that was killed has left no status.
    status= seconds= group=$(cat "$work/$name.group")
    # It is alone now, and waited for. Without rights it stays as nice as it is.
    { echo 0 >"/proc/$group/autogroup"; renice -n 0 -g "$group"; } >/dev/null 2>&1
    wait "$group"
    read -r status seconds 2>/dev/null <"$work/$name.status"
    "$1" "$name" "${status:-1}" "${seconds:-0}" "$work/$name.log"
  done
  besides=()
}
end_besides() {
  local name
  for name in "${besides[@]}"; do kill -TERM -- "-$(cat "$work/$name.group")" 2>/dev/null; done
}
