"""The cluster of a chaos run: three real servers, a fault proxy before each, worker processes.

Decides how things are started and ended: whatever happens, `Cluster.close` ends every server and
every worker, and nobody else's process. What is done to them is `tests.interop.chaos_faults`.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from tests.check.environment import ROOT as PROJECT
from tests.interop import chaos_recipes, chaos_workers
from tests.interop.chaos_recipes import DONE, ITEMS, NUMBER, QUEUE, TREE, Line, TreeWriter
from tests.interop.chaos_ways import ROOT, SESSION_TIMEOUT, clock
from tests.interop.chaos_workers import KEYS, KINDS, register_of
from tests.support.history import Record, to_line
from tests.support.installed_servers import InstalledBackend, InstalledServer, _leash
from tests.support.server_control import ServerStartError, Settings, poll
from zkwire import Client, NodeExistsError, ZooKeeperError
from zkwire.testing import FaultProxy

# Nothing takes this long on a machine that does anything at all.
SERVE_SECONDS = 240.0
END_SECONDS = 360.0
LOOK_SECONDS = 0.2
WORKERS = 6  # every other one with asyncio
SETTINGS = Settings(options={"syncLimit": "8"})


class Crew:
    """One worker process."""

    def __init__(self, cluster: Cluster, number: int, generation: int) -> None:
        self.number = number
        self.generation = generation
        self.name = f"w{number}.{generation}"
        self.log = cluster.directory / f"{self.name}.log"
        self.log.touch()
        self.rest = self.log.with_suffix(".rest")
        mode = "tasks" if number % 2 else "threads"
        seed = cluster.rng.randrange(2**32)
        self._errors = self.log.with_suffix(".err")
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [
                    *_leash(), sys.executable, "-m", "tests.interop.chaos_workers", self.name, mode,
                    cluster.hosts, str(SESSION_TIMEOUT), str(self.log), str(seed),
                ],
                cwd=PROJECT, stdin=subprocess.PIPE, stdout=errors, stderr=errors, process_group=0,
            )  # fmt: skip
        assert self.process.stdin is not None
        self._orders = self.process.stdin

    def say_stop(self) -> None:
        """Ask it to end."""
        with suppress(BrokenPipeError):
            self._orders.write(b"stop\n")
            self._orders.flush()

    def end(self) -> None:
        """End it, whatever it does."""
        self.process.kill()
        self.process.wait()
        with suppress(BrokenPipeError):
            self._orders.close()

    def last_words(self) -> str:
        """What it has printed."""
        return self._errors.read_text(errors="replace")[-2000:]


class Cluster:
    """See the module's docstring."""

    def __init__(self, backend: InstalledBackend, seed: int, workers: int = WORKERS) -> None:
        self.rng = random.Random(seed)
        self.deaths: dict[str, float] = {}
        self.crews: list[Crew] = []
        self.past: list[Crew] = []
        self.found: list[str] = []
        self.kept = False
        self.meanwhile: Callable[[], object] = list  # what happens while servers come back
        self._exit = ExitStack()
        try:
            self.directory = Path(tempfile.mkdtemp(prefix="zkwire-chaos-"))
            self._exit.callback(self._clear)
            self.ensemble = self._exit.enter_context(backend.ensemble(SETTINGS))
            self.proxies = [
                self._exit.enter_context(FaultProxy(server.hosts))
                for server in self.ensemble.servers
            ]
            self.hosts = ",".join(proxy.hosts for proxy in self.proxies)
            self.whole()
            self._make_nodes()
            self._exit.callback(self._end_crews)
            for number in range(workers):
                self.crews.append(Crew(self, number, 0))
            rng = random.Random(seed)
            self.tree = self._exit.enter_context(TreeWriter(self.outsider, rng, self.rests))
        except BaseException:
            self._exit.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything."""
        self.heal()
        self._exit.close()

    def _clear(self) -> None:
        if not self.kept:
            shutil.rmtree(self.directory, ignore_errors=True)

    def keep(self, records: Iterable[Record]) -> None:
        """Leave everything that was told, and the history made of it, where it is."""
        self.kept = True
        for number, member in enumerate(self.members):
            shutil.copyfile(member.directory / "log", self.directory / f"server{number}.log")
        lines = "".join(f"{to_line(record)}\n" for record in records)
        (self.directory / "history").write_text(lines)

    def _end_crews(self) -> None:
        for crew in self.crews:
            crew.end()

    def outsider(self) -> Client:
        """A new client that goes around the proxies; one from before may have lost its session."""
        return Client(self.ensemble.hosts, session_timeout=20.0, operation_timeout=10.0)

    def _make_nodes(self) -> None:
        paths = [register_of(kind) for kind in KINDS]
        paths += [register_of(key) for keys in KEYS.values() for key in keys]
        with self.outsider() as client:
            for path in ("/registers", ROOT, f"{ROOT}/nodes", QUEUE, TREE, *paths):
                with suppress(NodeExistsError):
                    client.create(path)
            client.create(NUMBER, b"0")

    # --- servers ----------------------------------------------------------------------------------

    @property
    def members(self) -> list[InstalledServer]:
        """The servers, with what only installed ones have."""
        return [server for server in self.ensemble.servers if isinstance(server, InstalledServer)]

    def leader(self) -> InstalledServer:
        """The one that leads, as soon as all serve."""
        deadline = time.monotonic() + SERVE_SECONDS
        while True:
            try:
                leader = self.ensemble.wait_serving(max(0.0, deadline - time.monotonic()))
            except ServerStartError:  # one has ended by itself, as they do now and then
                if time.monotonic() > deadline:
                    raise
                self._start_all()
            else:
                assert isinstance(leader, InstalledServer)
                return leader

    def follower(self) -> InstalledServer:
        """One that does not, by chance."""
        leader = self.leader()
        return self.rng.choice([member for member in self.members if member is not leader])

    def whole(self) -> None:
        """Have all members serve again."""
        self._start_all()
        self.meanwhile()
        self.leader()

    def _start_all(self) -> None:
        for member in self.members:
            member.resume()
            if not member.running:
                member.start(wait=False)

    def heal(self) -> None:
        """No fault in any proxy from now on."""
        for proxy in self.proxies:
            proxy.reset()  # also empties its log
            proxy.refuse(False)
            proxy.black_hole(False)

    # --- workers ----------------------------------------------------------------------------------

    def replace(self, crew: Crew) -> None:
        """Kill a worker, and have a new one in its place."""
        crew.end()
        self.deaths[crew.name] = clock()  # it has told nothing that is later
        self.past.append(crew)
        self.crews[self.crews.index(crew)] = Crew(self, crew.number, crew.generation + 1)

    def told(self) -> list[list[Line]]:
        """The lines of all workers of all times."""
        return [chaos_workers.read(crew.log) for crew in (*self.past, *self.crews)]

    def rests(self) -> set[bytes]:
        """Of which rests of the tree's writer those who mirror it say that they have seen all."""
        return {each.rest.read_bytes() if each.rest.exists() else b"" for each in self.crews}

    def wait_all_acquire(self, seconds: float) -> float:
        """Wait until all have done once more what they are for; how long the last one took."""
        began, since = time.monotonic(), {crew.name: crew.log.stat().st_size for crew in self.crews}
        rested = self.tree.rested
        wanted = {f"{crew.name}-{kind}" for crew in self.crews for kind in (*KINDS, *DONE)}
        wanted |= {*ITEMS, TREE}

        def missing() -> set[str]:
            time.sleep(LOOK_SECONDS)
            told: set[str] = {TREE} if self.tree.rested > rested + 1 else set()
            for crew in self.crews:
                with crew.log.open() as file:
                    file.seek(since[crew.name])
                    lines = [json.loads(line) for line in file.read().split("\n")[:-1]]
                told |= set(chaos_workers.grants([lines]))
                told |= {line["who"] for line in lines if line["what"] in DONE.values()}
                told |= {line["key"] for line in lines if line["what"] == "look"}
            return wanted - told

        try:
            poll("all acquire", lambda: not missing() or None, seconds)
        except TimeoutError:
            self.found.append(f"LIVE: nothing for {sorted(missing())} in {seconds:g} s of calm")
        return time.monotonic() - began

    def finish(self) -> None:
        """Ask all workers to end, and look at what they leave."""
        self.tree.__exit__()
        self.found += self.tree.found
        for crew in self.crews:
            crew.say_stop()
        until = time.monotonic() + END_SECONDS
        for crew in self.crews:
            try:
                code = crew.process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.found.append(f"LIVE: {crew.name} does not end: {crew.last_words()}")
                continue
            if code != 0:
                self.found.append(f"{crew.name} ended with {code}: {crew.last_words()}")
        for lines in self.told():
            for line in lines:
                if line["what"] == "bug":
                    self.found.append(f"ERROR: {line['who']}: {line['note']}")
                if line["what"] == "bye" and line["left"]:
                    self.found.append(f"left in {line['who']}: {line['left']}")
        with self.outsider() as client:
            end = chaos_recipes.read_end(client)
        self.found += chaos_recipes.judge(self.told(), end)

    def nodes_left(self) -> list[str]:
        """Nodes of contenders; of killed ones they go with their sessions."""

        def left() -> list[str]:
            try:
                with self.outsider() as client:
                    client.sync(ROOT)
                    return [path for path in client.walk(ROOT) if _is_ephemeral(client, path)]
            except ZooKeeperError as error:
                return [repr(error)]

        found = left()
        until = time.monotonic() + END_SECONDS
        while found and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
            found = left()
        return found


def _is_ephemeral(client: Client, path: str) -> bool:
    stat = client.exists(path)
    return stat is not None and stat.ephemeral_owner != 0
