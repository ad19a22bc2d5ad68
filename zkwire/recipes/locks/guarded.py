"""Operations that the server executes only for the holder of a lock.

The checks that prove it are the lock's, of which kind it must not know.  It decides which refusal
is theirs.
"""

from __future__ import annotations

from zkwire.errors import BadVersionError, MultiError, NoNodeError, ServerError
from zkwire.recipes.runtime import in_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from zkwire.operations.multi import Operation
    from zkwire.recipes.runtime import Runtime


async def guarded(
    runtime: Runtime,
    checks: list[Operation],
    operations: Iterable[Operation],
    lost: Callable[[], Exception],
) -> list[Any]:
    """Execute a multi that the server refuses if a check fails: what ``lost`` returns is raised."""
    multi = runtime.operations.multi([*checks, *operations])
    try:
        results = await runtime.until(multi, in_time(runtime, None))
    except MultiError as error:
        index = error.index - len(checks)
        if index >= 0:
            raise MultiError(error.results[len(checks) :], index) from error.__cause__
        refusal = error.results[error.index]
        if isinstance(refusal, ServerError) and not isinstance(
            refusal, (NoNodeError, BadVersionError)
        ):
            raise refusal from error
        raise lost() from error
    return results[len(checks) :]
