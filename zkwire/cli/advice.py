"""The library's advice in the words of the command line: a flag, not a call or an argument."""

from __future__ import annotations

# What a message of the library has, as a pattern, and what stands there on the command line.
WORDS = {
    r"; ensure_path\(.*\) creates it": "; `create -p` creates it",
    r"perhaps add_auth first": "perhaps --auth (in the shell: addauth) is missing",
    r"a client without one can create it": "`create -p` with a --server without it creates it",
    r"sasl=\.\.\., or auth=\[\.\.\.\] by one of": "--auth by one of",
    r"tls=ssl\.create_default_context\(\)": "--tls",
    r"for which read_only=True is": "for which --read-only is",
    r"; make a new Client, or ask the supervisor for its next$": "",
    r"^session_timeout must": "--session-timeout must",
    r"; for a longer session, .*timedelta\(.*\)$": "",
    r"^lease_margin must (.*) of session_timeout,": r"--lease-margin must \1 of --session-timeout,",
    r"^ttl must": "--ttl must",
    r"^auth cannot be sent": "--auth cannot be sent",
}


def in_flags(message: str) -> str:
    """The message of an error with advice for the command line."""
    import re

    for theirs, ours in WORDS.items():
        message = re.sub(theirs, ours, message)
    return message
