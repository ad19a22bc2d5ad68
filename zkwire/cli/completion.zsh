#compdef zkwire
# Completion of zkwire, written by `zkwire completion zsh`.
_zkwire() {
    local found word=${(Q)words[CURRENT]}
    local -a lines
    if found=$("${(Q)words[1]}" complete -- "${(@Q)words[2,CURRENT-1]}" "$word" 2>/dev/null); then
        lines=(${(f)found})
        if [[ ${lines[1]} == /* ]]; then
            compadd -S '' -- $lines
        elif [[ $word == -* ]]; then
            lines=("${(@)lines/$'\t'/:}"); _describe -o option lines
        else
            lines=("${(@)lines/$'\t'/:}"); _describe command lines
        fi
    else
        _files
    fi
}
if [[ ${funcstack[1]} == _zkwire ]]; then _zkwire "$@"; else compdef _zkwire zkwire; fi
