# fish completion for ddpctl and ddprun: commands, options and their values as --help lists them, jobs and nodes as the coordinator
# does. What the arguments of a command are (JOB, NODE, files) is read from its usage line.

function __ddpctl_complete
    set -l words (commandline -opc) # before the word that is completed
    set -l current (commandline -ct)
    set -l program $words[1]
    set -e words[1]
    if string match -q '*ddprun' -- $program # ddprun is `ddpctl run`
        set program (string replace -r 'ddprun$' ddpctl -- $program)
        set -p words run
    end
    set -l command $words[1]
    if test (count $words) -eq 0; or test "$command" = help
        $program --help 2>/dev/null | string replace -rf '^  ([a-z]+)   *(.*)' '$1\t$2'
        printf 'help\tdescribe a command\n'
        return
    end
    set -l i 1
    for word in $words[2..] # behind "--" stands a command of the user's, and behind a script its arguments
        set i (math $i + 1)
        if test "$word" = --
            __ddpctl_command $words[(math $i + 1)..] $current
            return
        else if string match -qr '^(run|submit|check|bench)$' -- $command
            if string match -q '*.py' -- $word
                __fish_complete_path $current
                return
            else if string match -qr '^(.*/)?python3?$' -- $word
                __ddpctl_command $words[$i..] $current
                return
            end
        end
    end
    set -l lines ($program $command --help 2>/dev/null)
    if test (count $words) -gt 1; and string match -q -- '-*' $words[-1]
        set -l done (string match -r '^.*,' -- $current) # of a list
        switch $command/$words[-1]
            case 'metrics/-n' 'metrics/--name' 'metrics/-p' 'metrics/--plot'
                printf '%s\n' "$done"(string split -n ' ' -- ($program metrics $words[2] --limit 1 2>/dev/null | string replace -rf '^ *STEP' ''))
                return
            case 'status/-s' 'status/--state'
                printf '%s\n' "$done"{queued,starting,running,recovering,stopping,succeeded,failed,cancelled}
                return
        end
        set -l value (__ddpctl_value $words[-1] $lines)
        switch "$value"
            case FILE
                __fish_complete_path $current
                return
            case DIR
                __fish_complete_directories $current
                return
            case '?*'
                set -l choices (string match -r '^[a-z][a-z0-9]*$' -- (string split '|' -- $value)) # of N|gpu|cpu|auto: gpu, cpu, auto
                if set -q choices[1]
                    printf '%s\n' $choices
                    return
                end
        end
    end
    if string match -q -- '-*' $current
        printf '%s\n' $lines | string replace -rf '^ *(?:-\w, )? *(--[a-z-]+)(?: [^ ]+)?(?: +(.*))?$' '$1\t$2'
        return
    end
    if test "$command" = tune; and test (count $words) -gt 1
        $program tune $words[2] 2>/dev/null | string replace -rf '^([a-z][a-z_.]*) .*' '$1='
        return
    end
    # the words of the usage, without the values of options
    set -l usage (printf '%s\n' $lines | sed '/^$/,$d; s/--[a-z-]* [A-Z]*//g' | tr '[]|' '   ' | string split -n ' ')
    if string match -qr '^(JOB.yaml|SCRIPT.py)$' -- $usage
        string match -r '.*(?:/|\.yaml|\.yml|\.py)(?:\t.*)?$' -- (__fish_complete_path $current)
    end
    contains DIR $usage; and __fish_complete_directories $current
    contains NODE $usage; and $program nodes 2>/dev/null | sed '1d; $d; s/ .*//'
    contains HOOK $usage; and $program tell 2>/dev/null | sed '1d; $d; s/ .*//'
    if contains JOB $usage; or contains JOB... $usage
        # the last line counts nodes
        $program status 2>/dev/null | sed '$d' | string replace -rf '^ *([0-9]+) +([^ ]+).*' '$1\t$2'
        printf 'last\tyour newest job\n'
    end
end

# What --help calls the value of an option: "table|json", "FILE", or nothing.
function __ddpctl_value # option, lines of --help
    set -l option (string escape --style=regex -- $argv[1])
    printf '%s\n' $argv[2..] | string replace -rf "^ *(?:-\\w, )? *(?<=^| )$option(?:, --[a-z-]+)? ([^ ]+)(?: .*)?\$" '$1' | head -1
end

function __ddpctl_command # the words of a command, the last one to be completed
    complete -C (string join ' ' -- (string escape -- $argv[1..-2]) $argv[-1])
end

complete -c ddpctl -f -a '(__ddpctl_complete)'
complete -c ddprun -f -a '(__ddpctl_complete)'
