"""What the shell tells of sessions and of watches, whenever it comes."""

from __future__ import annotations

from zkwire.wire.model import EventType, State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from zkwire import Client, Event

STATES = {
    State.DISCONNECTED: "the connection is lost; looking for a server",
    State.CONNECTED: "connected again, in the same session",
    State.CONNECTED_READ_ONLY: "connected again, to a server that can only be read",
    State.EXPIRED: "expired: its ephemeral nodes and watches are gone; "
    "`reconnect` starts a new one",
    State.AUTH_FAILED: "ended: the server has refused the credentials",
}
KINDS: dict[int, str] = {
    EventType.NODE_CREATED: "created",
    EventType.NODE_DELETED: "deleted",
    EventType.NODE_DATA_CHANGED: "changed",
    EventType.NODE_CHILDREN_CHANGED: "children",
    EventType.REREAD: "gap",
    EventType.DATA_WATCH_REMOVED: "removed: data watch",
    EventType.CHILD_WATCH_REMOVED: "removed: child watch",
    EventType.PERSISTENT_WATCH_REMOVED: "removed: persistent watch",
}


class Events:
    """Calls ``note`` with a line for each event.  ``shown``: whether those of watches are."""

    READS = frozenset({"ls", "get", "stat"})

    def __init__(self, note: Callable[[str], object]) -> None:
        self._note = note
        self._told: State = State.CONNECTED
        self._current: Client | None = None
        self.shown = True

    def follow(self, client: Client | None) -> None:
        """From now on the states of this client are told, which is connected."""
        self._current, self._told = client, State.CONNECTED

    def state(self, client: Client, state: State) -> None:
        """A state of the client; attempts to connect are not told."""
        if client is self._current and state in STATES and state is not self._told:
            self._told = state
            self._note(f"session: {STATES[state]}")

    def event(self, event: Event) -> None:
        """An event of a watch; the end of the session is told as a state."""
        if self.shown and event.type != EventType.NONE:
            kind = KINDS.get(event.type, str(event.type))
            self._note(f"watch: {kind} {event.path}")

    def watch(self, command: str, client: Client, path: str) -> None:
        """Set the watch that zkCli's ``-w`` sets for this command.  Raises what the read raises."""
        if command == "ls":
            client.get_children(path, watch=self.event)
        elif command == "get":
            client.get_data(path, watch=self.event)
        else:
            client.exists(path, watch=self.event)
