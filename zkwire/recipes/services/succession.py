"""Sessions one after another, and what shall be true in each of them.

It decides when a session is begun, what runs in it, and what must have ended before the next.  It
must not know how a client is made or what a thread is: that is its shell's matter.

Invariants:

* There is one session at a time.  The client of the one before is closed before the next is made,
  so what was made with it (a lock, a watch, a term of leadership) can never go on: each call to it
  raises.
* A service runs in the newest session, and its run in the one before has ended by then.
* No code of a user's runs under the mutex, and :meth:`Succession.dismiss`, which a finalizer may
  call, does without it.
* A later session begins with a ``sync``: what is read in it is never older than what was read in
  the one before.
* Clients that are never connected are followed by pauses that double, a session that has ended at
  once by a short one, and one that has lasted by none.
"""

from __future__ import annotations

from contextlib import suppress

from zkwire.errors import BUSY, AuthFailedError, ClientClosedError, NotReadOnlyError, ServerError
from zkwire.recipes.runtime import persist
from zkwire.recipes.services.service import SESSION_OVER, Condition
from zkwire.recipes.supervised import SupervisedRuntime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from zkwire.recipes.services.service import Service
    from zkwire.recipes.services.supervisor_shell import Shell


LASTED = 0.1  # seconds: a session that was connected that long is followed by no pause
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0


class Succession:
    """The sessions of one supervisor."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._newest: Any = shell.make_client()  # so that bad options are refused here
        # How many sessions there have been, and the client of the last while it lasts.  One
        # attribute, so that a reader without the mutex never gets the one without the other.
        self._present: tuple[int, Any] = (0, None)
        self._begun = self._supervised = False
        self._refusal = ""
        self._services: dict[Service, None] = {}
        self._waiting: set[Condition] = set()  # for a session
        self._runtime = SupervisedRuntime(self, shell.mutex)  # of the recipes
        self._error: BaseException | None = None
        self._origin: TracebackType | None = None  # of the error
        self._closed = False
        self._stopped = Condition(lambda: self._closed)

    @property
    def latest_driver(self) -> Any:
        """The driver of the newest session, be it over or not."""
        return self._newest._driver

    async def newest(self) -> Any:
        """The driver of the newest session; see the subclass."""
        raise NotImplementedError

    # --- for services, see recipes.service.Sessions -----------------------------------------------

    def serve(self, service: Service) -> None:
        """Run the service in this session and in each later one, until :meth:`dismiss`."""
        self.begin()
        with self._shell.mutex:
            self._services[service] = None
            client = self._present[1]
            if client is not None:
                with suppress(*SESSION_OVER):  # the next session serves it
                    self._serve_in(client, service)

    def _serve_in(self, client: Any, service: Service) -> None:
        client._driver.serve(service)
        if service not in self._services:  # it has been dismissed meanwhile, without the mutex
            client._driver.dismiss(service)

    def dismiss(self, service: Service) -> None:
        """Stop the service soon, in the middle of a wait.  Idempotent."""
        self._services.pop(service, None)
        client = self._present[1]
        if client is not None:
            client._driver.dismiss(service)

    def check_open(self) -> None:
        """Raise what has ended the supervisor."""
        self.raise_error()
        if self._closed:
            raise ClientClosedError("this supervisor has been closed")

    def _check(self) -> None:
        self._shell.check()
        self.check_open()

    # --- the sessions -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to connect unless that has been done; raises what has ended the supervisor."""
        self._check()
        with self._shell.mutex:
            if not self._begun:
                self._shell.begin(self._supervise, "sessions")
                self._begun = True

    async def _supervise(self) -> None:
        with self._shell.mutex:
            if self._supervised:
                return  # an interrupt of the first begin() has made a second one of it
            self._supervised = True
        pause = 0.0
        try:
            while True:
                lasted = await self._run(self._newest)
                if lasted is not None:  # one that is killed again and again must not wait for long
                    pause = 0.0 if lasted else FIRST_PAUSE
                if self._closed:
                    return
                self._newest = self._shell.make_client()  # before the pause, for calls of recipes
                self._notify_waiting()
                if await self._shell.within(self._stopped, pause * self._shell.jitter()):
                    return
                pause = min(max(FIRST_PAUSE, 2 * pause), LONGEST_PAUSE)
        except Exception as error:  # a certificate that is gone, say
            self._end(error)
        finally:
            self._end(None)  # whatever has ended it, a cancellation from outside, too

    async def _run(self, client: Any) -> bool | None:
        """One session, to its end; whether it has lasted, None if it was never connected."""
        driver, began, lasted = client._driver, None, None
        try:
            if not self._closed:
                await self._connect(driver)
                began = self._shell.now()
                self._enter(client)
                await driver.holds(self._stopped, None)
        except AuthFailedError as error:
            self._refusal = f": {error}"
            driver.warn(f"{driver.name}: {error}; a supervisor keeps trying")
        except SESSION_OVER:
            pass
        finally:
            if began is not None:
                lasted = self._shell.now() - began >= LASTED
            await self._leave(client)
        return lasted

    async def _connect(self, driver: Any) -> None:
        await driver.connected(None)
        if self._present[0] > 0:
            await self._catch_up(driver)
            driver.check_open()

    async def _catch_up(self, driver: Any) -> None:
        """See to it that the server is not behind the one of the last session.

        A refusal is logged and tried again, as those of services are.
        """
        pause = FIRST_PAUSE
        while True:
            try:
                await persist(driver, None, driver.operations.sync, "/")
                return
            except BUSY:
                pass  # a server that takes its time to refuse is asked again at once
            except NotReadOnlyError:
                return  # a read-only server is behind, and says so
            except ServerError as refusal:
                if pause == FIRST_PAUSE:
                    driver.warn(f"{driver.name}: a new session waits, and tries again: {refusal}")
                await driver.holds(self._stopped, pause * self._shell.jitter())
                if self._closed:
                    return
                pause = min(2 * pause, LONGEST_PAUSE)

    def _enter(self, client: Any) -> None:
        with self._shell.mutex:
            self._present = (self._present[0] + 1, client)
            for service in list(self._services):
                self._serve_in(client, service)
        self._notify_waiting()

    def _notify_waiting(self) -> None:
        for condition in list(self._waiting):
            condition.notify()

    async def _leave(self, client: Any) -> None:
        with self._shell.mutex:
            self._present = (self._present[0], None)
        try:
            await self._shell.close_client(client)
        finally:
            for service in list(client._driver.services):
                client._driver.dismiss(service)
        await self._shell.until_idle(client)

    def _end(self, error: BaseException | None) -> None:
        """Make no other session; the first ``error`` is what each wait raises from now on."""
        if error is not None and self._error is None:
            self._error, self._origin = error, error.__traceback__
        self._closed = True
        self._stopped.notify()

    async def stop(self, error: BaseException | None = None) -> None:
        """End the session and make no other.  Idempotent."""
        self._end(error)
        await self._shell.close_client(self._newest)

    def raise_error(self) -> None:
        """Raise the error that a function, or the making of a client, has ended with."""
        if self._error is not None:
            raise self._error.with_traceback(self._origin)  # which each raise would make longer
