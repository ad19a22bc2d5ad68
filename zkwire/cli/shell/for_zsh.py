"""The completion file for zsh."""

from __future__ import annotations

from shlex import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.cli.shell.completion import Facts, Flag

SCRIPT = r"""#compdef zkwire
# Completion of zkwire for zsh, written by `zkwire completion zsh`.
_zkwire() {
    local word=${(Q)words[CURRENT]} command= second= paths= i
    local -a options commands flags first found
    for ((i = 2; i < CURRENT; i++)); do
        case ${words[i]} in
            (@VALUED@) options+=("${(Q)words[i]}" "${(Q)words[i+1]}"); ((i++)) ;;
            (-*) [[ -n $command ]] || options+=("${words[i]}") ;;
            (*) if [[ -n $command ]]; then second=1; else command=${words[i]}; fi ;;
        esac
    done
    case $command in
        ('') flags=(@COMMON@)
            commands=(@COMMANDS@)
            [[ $word == -* ]] || { _describe -t commands command commands; return } ;;
@CASES@
    esac
    if [[ $word == -* ]]; then
        _describe -o -t options option flags
    elif [[ -n $first && -z $second ]]; then
        compadd -- $first
    elif [[ -n $paths ]]; then
        found=(${(f)"$("${(Q)words[1]}" $options complete-path -- "$word" 2>/dev/null)"})
        compadd -S '' -- $found
    else
        _files
    fi
}
if [[ ${funcstack[1]} == _zkwire ]]; then _zkwire "$@"; else compdef _zkwire zkwire; fi
"""


def script(facts: Facts) -> str:
    """The text of the file."""
    cases: list[str] = []
    for name, flags in facts.flags.items():
        paths = "; paths=1" if name in facts.with_paths else ""
        words = f"; first=({' '.join(facts.words[name])})" if name in facts.words else ""
        cases.append(f"        ({name}) flags=({_described(flags)}){words}{paths} ;;")
    replaced = {
        "@VALUED@": "|".join(n for flag in facts.common if flag.takes_value for n in flag.names),
        "@COMMON@": _described(facts.common),
        "@COMMANDS@": " ".join(quote(f"{name}:{does}") for name, does in facts.commands.items()),
        "@CASES@": "\n".join(cases),
    }
    text = SCRIPT
    for mark, value in replaced.items():
        text = text.replace(mark, value)
    return text


def _described(flags: list[Flag]) -> str:
    return " ".join(quote(f"{name}:{flag.does}") for flag in flags for name in flag.names)
