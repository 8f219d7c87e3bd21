# shellcheck shell=bash
# Shared by the scripts of this folder; sourced, never run.

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
jobs="$(nproc)"

say() { printf '%s\n' "$*"; }
heading() { printf '\n== %s\n' "$*"; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# 75 -> 1:15
clock() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

# The text of a script's own header comment, as its help.
show_help() { awk 'NR > 1 && !/^#/ { exit } NR > 1 { sub(/^# ?/, ""); print }' "$1"; }

# configure_and_build PRESET TARGET...: quiet unless it fails.
configure_and_build() {
  local preset="$1" log
  shift
  mkdir -p "$root/build"
  log="$root/build/$preset.log"
  if ! (cd "$root" && cmake --preset "$preset" && cmake --build "build/$preset" -j "$jobs" --target "$@") >"$log" 2>&1; then
    grep -n -E -A 12 'error:|FAILED:|CMake Error|undefined reference' "$log" | head -n 120 || tail -n 60 "$log"
    say "The build of preset '$preset' failed; the whole log is $log"
    return 1
  fi
}

quarryd_pid=''

# start_quarryd PROGRAM DIR FLAG...: starts it and waits for its ready line; its output in
# DIR. Sets quarryd_pid, quarryd_grpc, quarryd_transfer and quarryd_metrics.
# shellcheck disable=SC2034 # its variables are for whoever sources this
start_quarryd() {
  local program="$1" dir="$2" ready='' tries
  shift 2
  "$program" "$@" >"$dir/quarryd.out" 2>"$dir/quarryd.log" </dev/null &
  quarryd_pid=$!
  for ((tries = 0; tries < 600; ++tries)); do
    ready="$(grep -m 1 '^quarryd ready ' "$dir/quarryd.out" || true)"
    if [[ -n "$ready" ]] || ! kill -0 "$quarryd_pid" 2>/dev/null; then break; fi
    sleep 0.1
  done
  if [[ -z "$ready" ]]; then
    cat "$dir/quarryd.out" "$dir/quarryd.log" >&2
    die "quarryd did not become ready"
  fi
  quarryd_grpc="$(ready_field grpc "$ready")"
  quarryd_transfer="$(ready_field transfer "$ready")"
  quarryd_metrics="$(ready_field metrics "$ready")"
}

ready_field() { sed -nE "s/^.* $1=([^ ]*).*$/\1/p" <<<"$2"; }

# Asks it to stop; fails when it does not exit with 0.
stop_quarryd() {
  local pid="$quarryd_pid"
  quarryd_pid=''
  kill -TERM "$pid" || return
  wait "$pid"
}
