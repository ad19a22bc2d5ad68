# Completion of zkwire, written by `zkwire completion bash`.
# Words are taken from the line, since bash itself splits HOST:PORT into three.
_zkwire() {
    local line=${COMP_LINE:0:COMP_POINT} word= colon found each IFS=$' \t\n'
    local -a typed
    read -ra typed <<<"$line"
    if [[ $line == *[![:space:]] ]]; then
        word=${typed[${#typed[@]}-1]}; unset "typed[${#typed[@]}-1]"
    fi
    colon=${word%"${word##*:}"}
    COMPREPLY=()
    if found=$("$1" complete -- "${typed[@]:1}" "$word" 2>/dev/null </dev/null); then
        while IFS=$'\t' read -r each _; do
            [[ $each == /* ]] && compopt -o nospace 2>/dev/null
            [[ $each ]] && COMPREPLY+=("$(printf %q "${each#"$colon"}")")
        done <<<"$found"
    else
        compopt -o default 2>/dev/null
    fi
}
complete -F _zkwire zkwire
