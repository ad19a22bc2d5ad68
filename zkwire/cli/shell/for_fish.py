"""The completion file for fish."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.cli.shell.completion import Facts, Flag

BEGIN = r"""# Completion of zkwire for fish, written by `zkwire completion fish`.
function __zkwire_paths
    set -l words (commandline -opc)
    set -l options
    for i in (seq 2 (count $words))
        switch $words[$i]
            case @VALUED@
                set -a options $words[$i] $words[(math $i + 1)]
            case --tls --read-only
                set -a options $words[$i]
        end
    end
    $words[1] $options complete-path -- (commandline -ct) 2>/dev/null </dev/null
end
function __zkwire_command
    set -l words (commandline -opc)
    set -l i 2
    while test $i -le (count $words)
        switch $words[$i]
            case @VALUED@
                set i (math $i + 1)
            case '-*'
            case '*'
                echo $words[$i]
                return 0
        end
        set i (math $i + 1)
    end
    return 1
end
function __zkwire_in
    contains -- (__zkwire_command; or echo '') $argv
end
function __zkwire_first
    test (commandline -opc)[-1] = "$argv"
end
"""


def script(facts: Facts) -> str:
    """The text of the file."""
    valued = " ".join(n for flag in facts.common if flag.takes_value for n in flag.names)
    lines = [BEGIN.replace("@VALUED@", valued)]
    free = "-n 'not __zkwire_command >/dev/null'"
    lines += [f"complete -c zkwire {free} {_flag(flag)}" for flag in facts.common]
    for name, does in facts.commands.items():
        lines.append(f"complete -c zkwire -f {free} -a {name} -d {_quote(does)}")
        inside = f"-n '__zkwire_in {name}'"
        lines += [f"complete -c zkwire {inside} {_flag(flag)}" for flag in facts.flags[name]]
    for name, words in facts.words.items():
        first = f"-n '__zkwire_first {name}'"
        lines.append(f"complete -c zkwire -f {first} -a {_quote(' '.join(words))}")
    inside = f"-n '__zkwire_in {' '.join(facts.with_paths)}'"
    lines.append(f"complete -c zkwire -f {inside} -a '(__zkwire_paths)'")
    return "\n".join(lines) + "\n"


def _flag(flag: Flag) -> str:
    names = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in flag.names)
    return f"{names}{' -r' if flag.takes_value else ''} -d {_quote(flag.does)}"


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
