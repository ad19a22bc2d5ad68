"""Operations that the server executes only for the holder of a lock.

The checks that prove it are the lock's (``proof``), of which kind it must not know.  It decides
which refusal is theirs, and what that says of the lock.
"""

from __future__ import annotations

from zkwire.errors import BadVersionError, MultiError, NoNodeError, ServerError
from zkwire.recipes.runtime import in_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from zkwire.operations.multi import Operation
    from zkwire.recipes.lock import Lock


async def guarded(core: Lock, operations: Iterable[Operation]) -> list[Any]:
    """Execute a multi that the server refuses if the lock is lost; see the shells."""
    core.world.check()
    proof = core.proof()
    multi = core.world.operations.multi([*proof, *operations])
    try:
        results = await core.world.until(multi, in_time(core.world, None))
    except MultiError as error:
        index = error.index - len(proof)
        if index >= 0:
            raise MultiError(error.results[len(proof) :], index) from error.__cause__
        refusal = error.results[error.index]
        if isinstance(refusal, ServerError) and not isinstance(
            refusal, (NoNodeError, BadVersionError)
        ):
            raise refusal from error
        raise core.lost_before("the server does not find its node", "used") from error
    return results[len(proof) :]
