# What the numbered scripts share: where things are, steps under a limit of time, the table at the end.
# TIERING_WORK: where builds and data of runs go, next to this file if nobody says. OUT: where logs and JSON go.
set -uo pipefail
bundle=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source=$bundle/source
name=$(basename "$0" .sh)
work=${TIERING_WORK:-$bundle/work}
out=${OUT:-$bundle/out}
mkdir -p "$work" "$out" || exit 2
work=$(cd "$work" && pwd)
out=$(cd "$out" && pwd)
log=$out/$name.log
steps=$work/$name.steps tables=$work/$name.tables failures=$work/$name.failures
python=$work/venv/bin/python
pytest=(-q -p no:cacheprovider -m gpu -W default) # versions of packages are not ours: what they warn of is no failure
limit=470 # seconds of one script; it has to end before 8 minutes have passed
failed=0
: >"$log" >"$steps" >"$tables" >"$failures"
export PYTHONUNBUFFERED=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INDEX=1
command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
cd "$source" || exit 2

# note STEP RESULT SECONDS TEXT: a line of the table.
note() {
  printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "${4//$'\t'/ }" >>"$steps"
  echo "$name: $1: $2 ($3 s)"
}

# step STEP SECONDS COMMAND...: what it prints goes to the log, its last line to the table. Those after it run in any case.
step() { run_step "$log" "$@"; }

# shown STEP SECONDS COMMAND...: what it prints is shown whole at the end, its messages go to the log.
shown() { run_step "$tables" "$@"; }

run_step() {
  local printed=$1 step=$2 most=$3 began=$SECONDS left=$((limit - SECONDS)) code=0 result=ok text=""
  shift 3
  if ((left < 5)); then
    note "$step" "not run" 0 "the script's time was up"
    failed=1
    return 1
  fi
  printf '\n===== %s: %s\n' "$step" "$*" >>"$log"
  local before=$(($(wc -c <"$log") + 1))
  timeout --kill-after=5 "$((most < left ? most : left))" "$@" >>"$printed" 2>>"$log" </dev/null || code=$?
  text=$(tail -c +"$before" "$log" | grep -v '^[[:space:]]*$' | tail -n 1 | cut -c -160)
  case $code in
    0) [[ $printed == "$log" ]] || text="" ;;
    77) result=skipped ;; # of C++ tests
    124 | 137) result="time is up" ;;
    *) result="failed ($code)" ;;
  esac
  note "$step" "$result" "$((SECONDS - began))" "$text"
  if [[ $result == ok || $result == skipped ]]; then return 0; fi
  failed=1
  { echo "----- $step: $result"; tail -c +"$before" "$log" | tail -n 15; } >>"$failures"
  return 1
}

# benchmark NAME SECONDS OPTION...: one of `python -m benchmarks --list`; its figures as JSON in $out.
benchmark() {
  local which=$1 most=$2 there
  shift 2
  there=$("$python" -m benchmarks --list 2>>"$log")
  if ! grep -q "^$which " <<<"$there"; then
    note "$which" "not here" 0 "no such benchmark in these sources"
    return 0
  fi
  mkdir -p "$work/disk"
  shown "$which" "$most" "$python" -m benchmarks "$which" --dir "$work/disk" --json "$out/$which.json" "$@"
}

# sanitize TOOL OPTION...: every C++ test of the CUDA part under one of compute-sanitizer's tools, many times as slow as alone.
sanitize() {
  local tool=$1 test
  for test in "$work"/build/tests-cuda/cuda_test_*; do
    step "$tool $(basename "$test")" 240 compute-sanitizer --tool "$@" --error-exitcode 1 "$test"
  done
}

# Scripts after the first begin with this.
need_build() {
  if [[ ! -e $work/built ]]; then
    echo "$name: nothing is built in $work: run $bundle/1-build.sh first" >&2
    exit 2
  fi
  first_call || finish
}

first_call() {
  step "first call of CUDA" 60 "$python" -c 'import sys; from tiering import cuda
print(cuda.unavailable() or cuda.status()); sys.exit(bool(cuda.unavailable()))'
}

# Figures, what failed, and the table of steps last, which is left in $out as JSON, too.
finish() {
  cat "$tables" >>"$log"
  cat "$failures" "$tables"
  python3 "$bundle/report.py" "$steps" "$out/$name.json" "$(cat "$bundle/source.version")" || failed=1
  [[ $failed == 0 ]] || echo "$name: some steps failed: $log says more"
  exit "$failed"
}
