# Completion of ceased for bash: asks the program.
_ceased() {
    # Readline splits words at = and :, which ceased has within words, such as n=3 and job:7. This puts
    # them together again: a part that follows without a space belongs to the word before it.
    local rest=$COMP_LINE part index=0 i
    local -a words=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        part=${COMP_WORDS[i]}
        if ((${#words[@]} > 0)) && [[ $rest == "${rest#[[:space:]]}" && -n $rest ]]; then
            words[index]+=$part
        else
            rest=${rest#"${rest%%[![:space:]]*}"}
            ((${#words[@]} > 0)) && ((index += 1))
            words[index]=$part
        fi
        rest=${rest#"$part"}
    done
    # Readline replaces only what follows the last = or : of the word.
    local word=${words[index]}
    local kept=${word%"${word##*[=:]}"}
    [[ $COMP_WORDBREAKS == *=* && $COMP_WORDBREAKS == *:* ]] || kept=
    local IFS=$'\013'
    COMPREPLY=($(
        _CLAP_IFS="$IFS" \
            _CLAP_COMPLETE_INDEX="$index" \
            _CLAP_COMPLETE_COMP_TYPE="$COMP_TYPE" \
            _CLAP_COMPLETE_SPACE=false \
            CEASED_COMPLETE=bash \
            ceased -- "${words[@]}" 2>/dev/null
    )) || COMPREPLY=()
    local only=${COMPREPLY[0]-}
    # Readline inserts a word as it is: a file name must not become code.
    for i in "${!COMPREPLY[@]}"; do
        printf -v 'COMPREPLY[i]' %q "${COMPREPLY[i]}"
    done
    COMPREPLY=("${COMPREPLY[@]#"$kept"}")
    # A value follows: no space after NAME= and job:.
    if [[ $only == *[=/:] ]]; then
        compopt -o nospace 2>/dev/null
    else
        compopt +o nospace 2>/dev/null
    fi
}
complete -o nospace -o bashdefault -F _ceased ceased
