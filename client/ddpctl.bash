# bash completion for ddpctl: commands and options as its --help lists them, jobs and nodes as the coordinator does.

_ddpctl() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} i
    local program=${COMP_WORDS[0]}
    COMPREPLY=()
    if ((COMP_CWORD == 1)) || [[ $command == help ]]; then
        COMPREPLY=($(compgen -W "$("$program" --help 2>/dev/null | sed -n 's/^  \([a-z]*\)  .*/\1/p') help --help" -- "$current"))
        return
    fi
    for ((i = 2; i < COMP_CWORD; i++)); do # behind "--" stands a command of the user's
        if [[ ${COMP_WORDS[i]} == -- ]]; then
            _ddpctl_command $((i + 1))
            return
        fi
        if [[ $command == @(run|submit|check) && ${COMP_WORDS[i]} == *.py ]]; then # and behind a script its arguments
            COMPREPLY=($(compgen -f -- "$current"))
            return
        fi
        if [[ $command == @(run|submit|check) && ${COMP_WORDS[i]} == ?(*/)python?(3) ]]; then
            _ddpctl_command $i
            return
        fi
    done
    case $previous in
    -o | --output)
        COMPREPLY=($(compgen -W "$("$program" "$command" --help 2>/dev/null |
            sed -n 's/.*--output \([a-z|]*\).*/\1/p' | tr '|' ' ')" -- "$current"))
        return
        ;;
    -n | --name | -p | --plot)
        if [[ $command == metrics ]]; then
            local job=${COMP_WORDS[2]} list=
            [[ $current == *,* ]] && list=${current%,*},
            _ddpctl_offer "${current##*,}" < <("$program" metrics "$job" --limit 1 2>/dev/null | sed -n '1s/^ *STEP//p')
            COMPREPLY=("${COMPREPLY[@]/#/$list}")
            return
        fi
        ;;
    --token | --config | --tls-ca | --tls-cert | --tls-key)
        COMPREPLY=($(compgen -f -- "$current"))
        return
        ;;
    --rdzv-backend)
        COMPREPLY=($(compgen -W "c10d static" -- "$current"))
        return
        ;;
    --nproc-per-node | --procs-per-node)
        COMPREPLY=($(compgen -W "gpu cpu auto" -- "$current"))
        return
        ;;
    --workdir | --log-dir | --tensorboard)
        COMPREPLY=($(compgen -d -- "$current"))
        return
        ;;
    --store)
        COMPREPLY=($(compgen -W "launcher program" -- "$current"))
        return
        ;;
    --tell-as)
        COMPREPLY=($(compgen -W "auto slack discord ntfy json" -- "$current"))
        return
        ;;
    --device)
        COMPREPLY=($(compgen -W "auto cpu cuda" -- "$current"))
        return
        ;;
    -s | --state)
        if [[ $command == status ]]; then
            COMPREPLY=($(compgen -W "queued starting running recovering stopping succeeded failed cancelled" -- "$current"))
            return
        fi
        ;;
    --grep | --since | --tail | --bytes)
        return # what the user writes, and no job
        ;;
    --restart-on)
        COMPREPLY=($(compgen -W "fault any" -- "$current"))
        return
        ;;
    esac
    if [[ $current == -* ]]; then
        COMPREPLY=($(compgen -W "$("$program" "$command" --help 2>/dev/null | grep -o -- '--[a-z][a-z-]*')" -- "$current"))
        return
    fi
    case $command in
    generate | check)
        COMPREPLY=($(compgen -W "$(_ddpctl_jobs)" -- "$current"))
        ;;&
    generate)
        compopt -o filenames 2>/dev/null
        COMPREPLY+=($(compgen -d -- "$current"))
        ;;
    submit | run | check | plan)
        compopt -o filenames 2>/dev/null
        COMPREPLY+=($(compgen -f -X '!*.@(yaml|yml|py)' -- "$current") $(compgen -d -- "$current"))
        ;;
    tune)
        if ((COMP_CWORD == 2)); then
            COMPREPLY=($(compgen -W "$(_ddpctl_jobs)" -- "$current"))
        else
            compopt -o nospace 2>/dev/null
            COMPREPLY=($(compgen -S = -W "$("$program" tune "${COMP_WORDS[2]}" 2>/dev/null | sed -n 's/^\([a-z][a-z_.]*\) .*/\1/p')" -- "$current"))
        fi
        ;;
    status | logs | wait | cancel | resize | restart | resume | metrics | export | verify | events | why | priority | hold | release | delete | show)
        COMPREPLY=($(compgen -W "$(_ddpctl_jobs) last" -- "$current"))
        ;;
    tell)
        _ddpctl_offer "$current" < <("$program" tell 2>/dev/null | sed '1d; $d; s/ .*//')
        ;;
    drain | undrain | forget)
        _ddpctl_offer "$current" < <("$program" nodes 2>/dev/null | sed '1d; $d; s/ .*//')
        ;;
    esac
}

# Offers the words on standard input that begin with $1. `compgen -W` would run a command whose text is in a word, and users choose the
# names of metrics. A word that the shell would read in another way is offered with quotes.
_ddpctl_offer() {
    local -a words
    local word
    read -d '' -ra words
    for word in "${words[@]}"; do
        [[ $word == "$1"* ]] && COMPREPLY+=("$(printf %q "$word")")
    done
}

# The last line counts nodes.
_ddpctl_jobs() {
    "$program" status 2>/dev/null | sed -n '$d; s/^ *\([0-9][0-9]*\) .*/\1/p'
}

# Completes as if the words from $1 on stood alone, where the bash-completion package can.
_ddpctl_command() {
    if declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    else
        COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
    fi
}

# ddprun is `ddpctl run`.
_ddprun() {
    COMP_WORDS=("${COMP_WORDS[0]%ddprun}ddpctl" run "${COMP_WORDS[@]:1}")
    COMP_CWORD=$((COMP_CWORD + 1))
    _ddpctl
}

complete -F _ddpctl ddpctl
complete -F _ddprun ddprun
