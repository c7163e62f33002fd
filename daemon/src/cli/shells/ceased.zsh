#compdef ceased
# Completion of ceased for zsh: asks the program. Works as a file `_ceased` in $fpath, and when sourced.
_ceased() {
    local entry value
    local -a found plain open
    found=("${(@f)$(
        _CLAP_IFS=$'\n' \
        _CLAP_COMPLETE_INDEX=$((CURRENT - 1)) \
        CEASED_COMPLETE=zsh \
        ceased -- "${words[@]}" 2>/dev/null
    )}")
    for entry in $found; do
        # An entry is VALUE:HELP, in which VALUE has \: for a colon.
        value=${${entry//\\:/$'\1'}%%:*}
        if [[ $value == *[=/] ]]; then
            open+=("$entry")
        else
            plain+=("$entry")
        fi
    done
    # A value follows after NAME=, so no space does.
    (( $#open )) && _describe -V 'value' open -S ''
    (( $#plain )) && _describe -V 'value' plain
}
if [[ $funcstack[1] == _ceased ]]; then
    _ceased "$@"
else
    compdef _ceased ceased
fi
