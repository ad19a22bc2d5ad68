"""The completion file for bash (3.2 and newer)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.cli.shell.completion import Facts

# Words are taken from the line, since bash itself splits HOST:PORT into three.
SCRIPT = r"""# Completion of zkwire for bash, written by `zkwire completion bash`.
_zkwire() {
    local IFS=$' \t\n' line=${COMP_LINE:0:COMP_POINT} command= flags= paths= colon word i found
    local words= second=
    local -a typed options
    read -ra typed <<<"$line"
    word=
    if [[ $line == *[![:space:]] ]]; then
        word=${typed[${#typed[@]}-1]}; unset "typed[${#typed[@]}-1]"
    fi
    for ((i = 1; i < ${#typed[@]}; i++)); do
        case ${typed[i]} in
            @VALUED@) options+=("${typed[i]}" "${typed[i+1]}"); ((i++)) ;;
            -*) [[ $command ]] || options+=("${typed[i]}") ;;
            *) if [[ $command ]]; then second=1; else command=${typed[i]}; fi ;;
        esac
    done
    COMPREPLY=()
    case $command in
        '') flags='@COMMON@'
            [[ $word == -* ]] || { COMPREPLY=($(compgen -W '@COMMANDS@' -- "$word")); return; } ;;
@CASES@
    esac
    if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$flags" -- "$word"))
    elif [[ $words && ! $second ]]; then
        COMPREPLY=($(compgen -W "$words" -- "$word"))
    elif [[ $paths ]]; then
        compopt -o nospace 2>/dev/null
        colon=${word%"${word##*:}"}
        while IFS= read -r found; do
            COMPREPLY+=("$(printf %q "${found#"$colon"}")")
        done < <("$1" "${options[@]}" complete-path -- "$word" 2>/dev/null </dev/null)
    else
        compopt -o default 2>/dev/null
    fi
}
complete -F _zkwire zkwire
"""


def script(facts: Facts) -> str:
    """The text of the file."""
    cases: list[str] = []
    for name, flags in facts.flags.items():
        paths = "; paths=1" if name in facts.with_paths else ""
        named = " ".join(name for flag in flags for name in flag.names)
        words = f"; words='{' '.join(facts.words[name])}'" if name in facts.words else ""
        cases.append(f"        {name}) flags='{named}'{words}{paths} ;;")
    replaced = {
        "@VALUED@": "|".join(n for flag in facts.common if flag.takes_value for n in flag.names),
        "@COMMON@": " ".join(name for flag in facts.common for name in flag.names),
        "@COMMANDS@": " ".join(facts.commands),
        "@CASES@": "\n".join(cases),
    }
    text = SCRIPT
    for mark, value in replaced.items():
        text = text.replace(mark, value)
    return text
