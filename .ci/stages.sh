# For scripts/test, which has the functions `runs` and `make_stage`: builds, runs tests, counts them, and prints the summary. The
# current directory is the source directory.
# shellcheck shell=bash
passed=0 failed=0 skipped=0
failures=()
only_alone=() # tests that failed beside others and then passed
stages=()     # "name seconds processor-seconds" of each stage that has ended
slow=()       # "seconds title: name" of each test

say() { printf '\n== %s (%d:%02d)\n' "$*" $((SECONDS / 60)) $((SECONDS % 60)); }

# Prints the processor's seconds that this shell and its children have used (proc(5)). Daemons that left their parents do not count.
cpu_seconds() {
    local fields
    read -ra fields </proc/$$/stat
    echo $(((fields[13] + fields[14] + fields[15] + fields[16]) / $(getconf CLK_TCK)))
}

# Succeeds if the stage was asked for (`runs` of scripts/test), and starts its clocks.
stage_begin() { # stage
    runs "$1" || return 1
    stage=$1
    stage_start=$SECONDS
    stage_cpu=$(cpu_seconds)
}
stage_end() { stages+=("$stage $((SECONDS - stage_start)) $(($(cpu_seconds) - stage_cpu))"); }

# The builds that run in the background are one process group.
making=()      # the stages that are being built, in order
making_pid=''  # of the group
making_dir=''  # logs, and a pipe with the exit status of each stage
stop_making() {
    [[ -z $making_pid ]] || kill -- "-$making_pid" 2>/dev/null
    [[ -z $making_dir ]] || rm -rf "$making_dir"
}

# Starts `make_stage` of scripts/test for these stages in the background, one after the other.
start_making() { # niceness, or '' for the usual one; stages...
    local niceness=$1
    shift
    making=("$@")
    making_dir=$(mktemp -d)
    mkfifo "$making_dir/ends"
    set -m
    (
        [[ -z $niceness ]] || renice -n "$niceness" -p "$BASHPID" >/dev/null
        for stage; do
            make_stage "$stage" >"$making_dir/$stage" 2>&1
            echo "$?"
        done >"$making_dir/ends"
    ) </dev/null &
    making_pid=$!
    set +m
    # Opening the pipe waits for the other side, so the priority is low by then. If `build` raised it before renice lowers it, it would stay low.
    exec {making_ends}<"$making_dir/ends"
}

# Builds those of these stages that were asked for in the background, unless a background build is running. It has the lowest priority:
# it uses the processor's time that tests leave while they wait.
build_ahead() { # stages...
    local asked=() name
    for name; do
        ! runs "$name" || asked+=("$name")
    done
    ((${#making[@]} || !${#asked[@]})) || start_making 19 "${asked[@]}"
}

# Waits for the first of the stages that are being built. Fails if its build failed or was killed.
await_made() {
    local code=1
    renice -n "$(nice)" -g "$making_pid" >/dev/null 2>&1 # only a privileged user may do this
    read -r code <&"$making_ends" || code=1
    making=("${making[@]:1}")
    if ((${#making[@]})); then
        renice -n 19 -g "$making_pid" >/dev/null 2>&1
    else
        exec {making_ends}<&-
        wait "$making_pid"
        making_pid=''
    fi
    return "$code"
}

# Builds a stage, or waits until it is built. Prints output only on failure.
build() { # stage
    local code=0
    say "build: $1"
    ((${#making[@]})) || start_making '' "$1"
    await_made || code=$?
    ((code == 0)) || { tail -n 60 "$making_dir/$1"; note_failure "build $1"; }
    ((${#making[@]})) || rm -rf "$making_dir"
    return $code
}

# Prints a regular expression for the test programs of a directory that can start threads: they call pthread_create, or a library
# that may do it.
with_threads() { # directory of programs
    local program names=()
    # Not grep -q: it ends at the first match, and if nm still writes then, nm fails and with it the pipe (pipefail).
    for program in "$1"/test_*; do
        if [[ -f $program && -x $program ]] && nm -D --undefined-only "$program" |
            grep -E ' (pthread_create|thrd_create|uv_|grpc_|MHD_|curl_|dnnl_)' >/dev/null; then
            names+=("${program##*/}")
        fi
    done
    local IFS='|'
    echo "^(${names[*]})\$"
}

note_failure() {
    failed=$((failed + 1))
    failures+=("$1")
}

# Runs ctest in a build directory and writes the results to a file, in the format of .ci/results.
run_ctest() { # file, directory, ctest arguments...
    local file=$1 dir=$2 xml
    shift 2
    xml=$(mktemp)
    ctest --test-dir "$dir" --output-on-failure --output-junit "$xml" "$@" 2>&1 |
        grep -v -E -e '^ +Start |^Test project|^Internal ctest|^UpdateCTest|^Parse Config|^Constructing a|^Done constr' \
            -e '^Updating test|^Added 0 tests|^Checking test|^test [0-9]+$|^$' \
            -e '^[0-9]+: (Test command|Working Dir|Environment var|Test timeout| [A-Z_]+=)'
    .ci/results "$xml" >"$file"
    rm -f "$xml"
}

# Prints the failed tests that are run again alone. They ran beside others, no sanitizer reported an error in them, and no more
# than five tests failed: more failures are not due to load.
to_run_again() { # results, ctest arguments...
    local results=$1
    shift
    [[ $stage == @(gcc|clang|asan|tsan) && " $* " == *" -j "* ]] || return 0
    awk -F '\t' '$1 == "failed" || $1 == "report" { bad++ } $1 == "failed" { names = names $3 "\n" }
                 END { if (bad <= 5) printf "%s", names }' "$results"
}

# Runs tests and adds them to the totals.
tests() { # title, directory, ctest arguments...
    local title=$1 dir=$2 results again names
    shift 2
    results=$(mktemp)
    again=$(mktemp)
    say "tests: $title"
    run_ctest "$results" "$dir" "$@"
    [[ -s $results ]] || note_failure "$title: no tests ran"
    names=$(to_run_again "$results" "$@" | paste -s -d '|')
    if [[ -n $names ]]; then
        say "alone: $title"
        run_ctest "$again" "$dir" -R "^($names)\$" -LE '^(sim|num)$'
    fi
    while IFS=$'\t' read -r outcome seconds name why; do
        slow+=("$seconds $title: $name")
        case $outcome in
        passed) passed=$((passed + 1)) ;;
        skipped) skipped=$((skipped + 1)) ;;
        *)
            if grep -q $'^passed\t[^\t]*\t'"$name"$'\t' "$again"; then
                passed=$((passed + 1))
                only_alone+=("$title: $name${why:+: $why}")
            else
                note_failure "$title: $name${why:+: $why}"
            fi
            ;;
        esac
    done <"$results"
    rm -f "$results" "$again"
}

# Runs a command as a test. Exit code 77 skips it: the command has printed the reason.
command_test() { # title, command...
    local title=$1 code=0
    shift
    say "$title"
    "$@" || code=$?
    case $code in
    0) passed=$((passed + 1)) ;;
    77) skipped=$((skipped + 1)) ;;
    *) note_failure "$title" ;;
    esac
}

# The last line is `N passed, M failed, K skipped`.
print_summary() {
    say "seconds of each stage, and processor seconds"
    ((${#stages[@]} == 0)) || printf '%-6s %5d %5d\n' ${stages[*]}
    say "slowest tests, in seconds"
    ((${#slow[@]} == 0)) || printf '%s\n' "${slow[@]}" | sort -rn | head -n 10
    say "done"
    for name in "${only_alone[@]}"; do
        echo "passed only alone: $name"
    done
    for failure in "${failures[@]}"; do
        echo "failed: $failure"
    done
    echo "$passed passed, $failed failed, $skipped skipped"
}
