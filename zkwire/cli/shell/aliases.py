"""zkCli's names for commands, and its ways to write arguments, as words of our own commands.

A table, so that there is one implementation of each command.  What a name means here is what it
means in ZooKeeper's own shell; where ours has the same name and means more, it is not in the table.
"""

from __future__ import annotations

# zkCli's name, and ours for the same.
NAMES: dict[str, tuple[str, ...]] = {
    "delete": ("rm",),
    "deleteall": ("rm", "-r"),
    "rmr": ("rm", "-r"),
    "ls2": ("ls", "-s"),
    "getAcl": ("acl", "get"),
    "setAcl": ("acl", "set"),
    "getEphemerals": ("ephemerals",),
    "getAllChildrenNumber": ("count",),
    "setquota": ("quota", "set"),
    "listquota": ("quota", "get"),
    "delquota": ("quota", "del"),
    "exit": ("quit",),
}
# Of a command, flags that have another name here; None: one with a value, which has no use here.
FLAGS: dict[str, dict[str, str | None]] = {
    "deleteall": {"-b": None},
    "get": {"-b": "--base64", "-x": "--hex"},
}
LIMITS = frozenset({"-n", "-b", "-N", "-B"})
_VALUED = frozenset({"-t", "--ttl", "--acl", "--data-file"})
# A second word of theirs is no path: `delete PATH VERSION` is that of ZooKeeper 3.4.
ONE_PATH = frozenset({"delete", "deleteall", "rmr"})


def translate(words: list[str]) -> list[str]:
    """The words of our command for those of zkCli's; others are returned as they are."""
    name, *rest = words
    rest = _flags(FLAGS.get(name, {}), rest)
    if name == "create":
        rest = _create(rest)
    if name in ONE_PATH:
        rest = _delete(name, rest)
    if name == "delquota" and (limits := [word for word in rest if word in LIMITS]):
        others = [word for word in rest if word not in LIMITS]
        return ["quota", "set", *others, *(word for limit in limits for word in (limit, "none"))]
    return [*NAMES.get(name, (name,)), *rest]


def _flags(table: dict[str, str | None], words: list[str]) -> list[str]:
    translated: list[str] = []
    left = iter(words)
    for word in left:
        if word in table and table[word] is None:
            next(left, None)
        else:
            translated.append(table.get(word) or word)
    return translated


def _delete(name: str, words: list[str]) -> list[str]:
    """``PATH VERSION`` with ``-v``; ValueError for a second word that is no version."""
    plain = [word for word in words if not word.startswith("-") or word == "-1"]
    if "-v" in words or len(plain) < 2:
        return words
    path, version, *more = plain
    if more or name != "delete" or not (version.isdecimal() or version == "-1"):
        raise ValueError(f"{name} takes one PATH{' and a version' * (name == 'delete')}")
    flags = [word for word in words if word not in plain]
    return [*flags, path, *(["-v", version] if version != "-1" else [])]


def _create(words: list[str]) -> list[str]:
    """``create PATH DATA ACL``: the third word that is no flag is an access list."""
    translated: list[str] = []
    plain, valued = 0, False
    for word in words:
        plain += not valued and (not word.startswith("-") or word == "-")
        if plain == 3 and "--acl" not in words:
            translated.append("--acl")
            plain += 1
        valued = word in _VALUED
        translated.append(word)
    return translated
