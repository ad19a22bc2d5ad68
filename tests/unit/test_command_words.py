"""Small parts of the command: access lists, when a lock must end, what a watch shows, words.

Of the shell without a server: its words, zkCli's names, secrets, and what the Tab key offers.
"""

from argparse import ArgumentTypeError
from contextlib import suppress
from signal import SIGKILL, SIGTERM

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.command import interpreter_of
from zkwire import SeenChildren, SeenData, Stat
from zkwire.cli.command import TABLE, UsageError
from zkwire.cli.lock.holding import Deadline
from zkwire.cli.nodes.watching import MISSED, EnoughError, States, Stream
from zkwire.cli.nodes.writing import access_list
from zkwire.cli.output import DONE, TIMED_OUT, Output, entry_of
from zkwire.cli.shell.interpreter import has_secret
from zkwire.cli.shell.terminal import completions
from zkwire.cli.shell.words import NAMES, commands_of, quoted, translate, unfinished, whole_lines


@pytest.mark.parametrize("text", ["", "world", "world:anyone", "world:anyone:", ":x:r", "a:b:cdx"])
def test_what_is_no_access_list_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="not an entry of an access list"):
        access_list(text)
    if text != "world:anyone:":  # a server can have such an entry
        with pytest.raises(ValueError, match="not an entry"):
            entry_of(text)


SENT = {"-": None, "TERM": SIGTERM, "KILL": SIGKILL}
DEADLINES = {
    "both are due before the lease ends": "lease 10; 5.9 -; 6 TERM; 8.9 -; 9 KILL; 99 -",
    "an answer prolongs, a shorter lease changes nothing": "lease 10; lease 14; lease 6; 9.9 -; "
    "10 TERM",
    "after TERM no answer saves the command": "lease 10; 6 TERM; lease 99; 9 KILL",
    "a loss is no reason to wait, and leaves time": "lease 10; lost; 1 TERM; 3.9 -; 4 KILL",
    "it wakes when only KILL is left": "lease 10; 9.5 KILL",
    "it wakes late": "lease 10; 8 TERM; 9 KILL",
    "there is no time for TERM": "after 0; lease 10; 8.9 -; 9 KILL",
}


@pytest.mark.parametrize("steps", DEADLINES.values(), ids=DEADLINES)
def test_a_signal_is_due_by_the_lease_or_by_the_loss(steps: str) -> None:
    deadline = Deadline(1.0, 3.0)
    for step in steps.split("; "):
        first, *rest = step.split()
        if first == "after":
            deadline = Deadline(1.0, float(rest[0]))
        elif first == "lease":
            deadline.prolong(float(rest[0]))
        elif first == "lost":
            deadline.lose()
        else:
            due = deadline.next <= float(first)
            assert deadline.due(float(first)) is SENT[rest[0]], step
            assert due is (rest[0] != "-"), step


def stat(czxid: int, version: int = 0) -> Stat:
    return Stat(**dict.fromkeys(Stat.__fields__, 0) | {"czxid": czxid, "version": version})


FIRST, SECOND = SeenData(b"", stat(1), False), SeenData(b"b", stat(1, 1), False)
LISTED = SeenChildren(["x", "y"], stat(1), False)
GAP = f"gap /a: {MISSED}"


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        (FIRST, SECOND, ["changed /a: version 1, b"]),
        (SECOND, SeenData(b"c", stat(1, 3), True), [GAP, "changed /a: version 3, c"]),
        (
            LISTED,
            SeenChildren(["y"], stat(2), True),  # another node
            [GAP, "deleted /a", "created /a", "added /a/y"],
        ),
        (LISTED, SeenChildren(None, None, True), ["removed /a/x", "removed /a/y", "deleted /a"]),
        (SeenData(None, None, False), SeenData(b"\x1b[2J\n\xff" * 30, stat(1), True), None),
    ],
    ids=["the next version", "a version was skipped", "another node", "deleted", "much data"],
)
def test_a_watch_tells_what_has_changed_between_two_states(
    capsys: pytest.CaptureFixture[str],
    before: SeenData | SeenChildren,
    after: SeenData | SeenChildren,
    lines: list[str] | None,
) -> None:
    for path in ("/a",) if lines else ("/a", "/" + 90 * "p"):
        show = States(Stream(Output(), None, None, DONE), path, iter(()), initial=False)
        for state in (before, after):
            show.show(state)
        shown = capsys.readouterr().out.splitlines()
        if lines is None:  # the data are cut to what a line has room for
            assert [len(line) for line in shown] == [max(80, len(f"created {path}"))]
            assert "\x1b" not in shown[0]
        else:
            assert shown == lines


def test_the_last_change_that_is_wanted_ends_a_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(Output(), 2, None, TIMED_OUT)
    for kind in ("exists", "created", "gap", "reconnected"):
        stream.change(kind, "/a")
    with pytest.raises(EnoughError) as caught:
        stream.change("deleted", "/a")
    assert caught.value.args == (DONE,)
    monkeypatch.setattr("sys.stdout", None)
    Output.check_reader()  # without an output no reader has ended


# --- the words of a shell -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("", []),
        ("  # get /a", []),
        ("ls /a#b # c ; d", [["ls", "/a#b"]]),
        (" ls /a;;get '/b;c' ; ", [["ls", "/a"], ["get", "/b;c"]]),
        (r"""a\ b "{\"k\": \n}" 'it''s' "" x""", [["a b", r'{"k": \n}', "its", "", "x"]]),
        ("set /a 'b\nc' \"d\ne\"", [["set", "/a", "b\nc", "d\ne"]]),
        ('set \\\n /a\\\nb "c\\\nd" \'e\\\nf\'', [["set", "/ab", "cd", "e\\\nf"]]),
    ],
)  # fmt: skip
def test_a_line_is_split_into_commands(line: str, commands: list[list[str]]) -> None:
    assert commands_of(line) == commands


@pytest.mark.parametrize(
    ("lines", "whole"),
    [
        (["a", "", "b"], [(1, "a"), (2, ""), (3, "b")]),
        (["a 'b", "c; d", "e' f", "g"], [(1, "a 'b\nc; d\ne' f"), (4, "g")]),
        (["a \\", "'b", "c'", "d"], [(1, "a \\\n'b\nc'"), (4, "d")]),
        (["a # it's \\", "b", 'c "', "d"], [(1, "a # it's \\"), (2, "b"), (3, 'c "\nd')]),
    ],
)
def test_a_quoted_line_end_joins_lines(lines: list[str], whole: list[tuple[int, str]]) -> None:
    assert list(whole_lines(lines)) == whole


@given(st.lists(st.text(min_size=1).filter(lambda word: word[0] != "#"), min_size=1))
def test_a_word_can_be_typed(words: list[str]) -> None:
    line = " ".join(map(quoted, words))
    assert commands_of(line) == [words]
    assert unfinished(line) == (words[:-1], words[-1])


@pytest.mark.parametrize(("typed", "ours"), [
    ("delete -v 3 /a", "rm -v 3 /a"),
    ("delete /a 3", "rm /a -v 3"),
    ("delete /a -1", "rm /a"),
    ("getAcl -s /a", "acl get -s /a"),
    ("get -b /a", "get --base64 /a"),
    ("get -x /a", "get --hex /a"),
    ("delquota /a", "quota del /a"),
    ("delquota -n -B /a", "quota set /a -n none -B none"),
    ("create -e -s /a", "create -e -s /a"),
    ("create -e /a data world:anyone:r", "create -e /a data --acl world:anyone:r"),
    ("create -t 5 /a data", "create -t 5 /a data"),
    ("create /a data --acl x", "create /a data --acl x"),
    ("tree -l /", "tree -l /"),
])  # fmt: skip
def test_words_of_zkcli(typed: str, ours: str) -> None:
    assert translate(typed.split()) == ours.split()


@pytest.mark.parametrize("typed", ["delete /a /b", "delete /a 3 4", "deleteall /a 3", "rmr /a /b"])
def test_a_deletion_of_zkcli_takes_one_path(typed: str) -> None:
    with pytest.raises(ValueError, match="takes one PATH"):
        translate(typed.split())


def test_each_name_of_zkcli_is_a_command_here() -> None:
    shell = interpreter_of()
    takes = {"setAcl": "/a digest:a:b:r", "setquota": "-n 1 /a"}
    for name, (command, *action) in NAMES.items():
        words = "" if command == "quit" else takes.get(name, "/a")
        shell.parser(command).parse_args([*action, *words.split()])
        assert name not in {*TABLE, *shell.own.table}


@pytest.mark.parametrize(("line", "secret"), [
    ("addauth digest a:b", True),
    ("ls; addAuth digest a:b", True),
    ("add_auth digest a:b", True),
    ("addauht digest a:b", True),
    ("'addauth' 'digest' a:b", True),
    ("ls; addauth digest 'a:b", True),
    ("ls / --auth digest:a:b", True),
    ("ls / --auth=sasl:a", True),
    ("acl set /a world:anyone:r,digest:a:hash=:cdrwa", True),
    ("setAcl /a own:a:secret:r", True),
    ("create /a data 'di'gest:a:hash=:cdrwa", True),
    ("create /a data --acl own:a:secret:cd,auth::r", True),
    ("acl set -R /a world:anyone:r,auth::cdrwa ip:127.0.0.1:r", False),
    ("acl set /a sasl:bob:cdrwa x509:CN=a,O=b:r", False),
    ("set /hosts zk://a:2181,b:2181/x", False),
    ("create /digest x", False),
    ("get 'a", False),
    ("create /addauth x", False),
    ("ls /auth", False),
])  # fmt: skip
def test_a_line_with_a_secret_is_known(line: str, secret: bool) -> None:
    assert has_secret(line) is secret


def test_a_secret_is_in_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    shell = interpreter_of()
    for words in ("digest me:secret again", "digest -f", "", "digest"):
        assert shell.run_line(f"addauth {words}") == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 4
    assert "secret again" not in said.err + said.out
    assert "me:" not in said.err + said.out


@pytest.mark.parametrize(("line", "offered"), [
    ("getA", ["getAcl ", "getAllChildrenNumber "]),
    ("help pw", ["pwd "]),
    ("ls /; addW", ["addWatch "]),
    ("create --p", ["--parents "]),
    ("create --j", []),  # the help does not show --json either
    ("deleteall --d", ["--dry-run "]),
    ("get /", []),  # no server
    ("none -", []),
])  # fmt: skip
def test_the_tab_key_offers_commands_and_flags(line: str, offered: list[str]) -> None:
    assert completions(interpreter_of(), line) == offered


@pytest.mark.parametrize("line", ["get '", "addauth -"])
def test_the_tab_key_does_no_harm(line: str) -> None:
    assert isinstance(completions(interpreter_of(), line), list)


def test_help_fits_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    shell = interpreter_of()
    commands = list(shell.own.table)
    for name in TABLE:
        with suppress(UsageError):  # one that a shell has not
            shell.find(name)
            commands.append(name)
    for name in ("", *commands):
        assert shell.run_line(f"help {name}") == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for name in commands:
        assert any(line.startswith(f"  {name} ") for line in lines)
