#compdef ddpctl ddprun
# zsh completion for ddpctl and ddprun: commands, options and their values as --help lists them, jobs and nodes as the coordinator
# does. What the arguments of a command are (JOB, NODE, files) is read from its usage line.

# The value of an option as --help names it: "table|json", "FILE", or nothing.
_ddpctl_value() { # option, lines of --help
    local option=$1 line
    for line in "${@:2}"; do
        [[ $line == (#b)' '#(-?, |)' '#--([a-z-]##)(' '([^' ']##)|)(|' '*) ]] || continue
        if [[ $option == --$match[2] || ${match[1]%, } == $option ]]; then
            print -r -- "$match[4]"
            return
        fi
    done
}

_ddpctl_jobs() { # the last line counts nodes
    local -a jobs=(${(f)"$($program status 2>/dev/null | sed -n '$d; s/^ *\([0-9][0-9]*\)  *\([^ ]*\).*/\1:\2/p')"})
    jobs+=(last:'your newest job')
    _describe -t jobs job jobs
}

_ddpctl() {
    setopt local_options extended_glob
    local program=$words[1] command line value i current previous
    local -a lines list
    if [[ $program == *ddprun ]]; then # ddprun is `ddpctl run`
        program=${program%ddprun}ddpctl
        words=($program run "${(@)words[2,-1]}")
        ((CURRENT++))
    fi
    command=$words[2] current=$words[CURRENT] previous=$words[CURRENT-1]
    if ((CURRENT == 2)) || [[ $command == help ]]; then
        list=(${(f)"$($program --help 2>/dev/null | sed -n 's/^  \([a-z]*\)   *\(.*\)/\1:\2/p')"} help:'describe a command')
        _describe -t commands command list
        return
    fi
    for ((i = 3; i < CURRENT; i++)); do # behind "--" stands a command of the user's
        if [[ $words[i] == -- ]]; then
            words=("${(@)words[i+1,-1]}") CURRENT=$((CURRENT - i))
            _normal
            return
        fi
        if [[ $command == (run|submit|check|bench) && $words[i] == *.py ]]; then # and behind a script its arguments
            _files
            return
        fi
        if [[ $command == (run|submit|check|bench) && $words[i] == ((*/|)python(3|)) ]]; then
            words=("${(@)words[i,-1]}") CURRENT=$((CURRENT - i + 1))
            _normal
            return
        fi
    done
    lines=("${(@f)$($program $command --help 2>/dev/null)}")
    if [[ $previous == -* ]] && ((CURRENT > 3)); then
        case $command/$previous in
        metrics/(-n|--name|-p|--plot))
            list=(${=${"$($program metrics $words[3] --limit 1 2>/dev/null | sed -n '1s/^ *STEP//p')"}})
            compset -P '*,'
            compadd -S '' -a list
            return
            ;;
        status/(-s|--state))
            compset -P '*,'
            compadd -S '' queued starting running recovering stopping succeeded failed cancelled
            return
            ;;
        esac
        value=$(_ddpctl_value $previous "${lines[@]}")
        case $value in
        FILE) _files; return ;;
        DIR) _files -/; return ;;
        ?*)
            list=(${(M)${(s:|:)value}:#[a-z][a-z0-9]#}) # of N|gpu|cpu|auto: gpu, cpu and auto
            ((${#list})) && compadd -a list
            return
            ;;
        esac
    fi
    if [[ $current == -* ]]; then
        list=()
        for line in "${lines[@]}"; do
            [[ $line == (#b)' '#(-?, |)' '#(--[a-z-]##)(|' '(*)) ]] || continue
            list+=("$match[2]:${${match[4]##[^ ]# ## }## #}")
        done
        _describe -o -t options option list
        return
    fi
    if [[ $command == tune ]] && ((CURRENT > 3)); then
        list=(${(f)"$($program tune $words[3] 2>/dev/null | sed -n 's/^\([a-z][a-z_.]*\) .*/\1/p')"})
        compadd -S = -a list
        return
    fi
    # the words of the usage, without the values of options
    line=" $(print -rl -- "${lines[@]}" | sed '/^$/,$d; s/--[a-z-]* [A-Z]*//g' | tr '[]|\n' '    ') "
    [[ $line == *(JOB.yaml|SCRIPT.py)* ]] && _files -g '*.(yaml|yml|py)'
    [[ $line == *' DIR '* ]] && _files -/
    [[ $line == *' NODE '* ]] && { list=(${(f)"$($program nodes 2>/dev/null | sed '1d; $d; s/ .*//')"}); compadd -a list; }
    [[ $line == *' HOOK '* ]] && { list=(${(f)"$($program tell 2>/dev/null | sed '1d; $d; s/ .*//')"}); compadd -a list; }
    [[ $line == *' JOB'(...|)' '* ]] && _ddpctl_jobs
    return 0
}

[[ $funcstack[1] == _ddpctl ]] && _ddpctl "$@"
