"""One event loop for all async rewards of the process.

As in TRL 1.16 the loop lives in a daemon thread for the whole run, so that a client session which
a user's function keeps between calls stays bound to a running loop, and so that a notebook, whose
own loop already runs in the main thread, works too.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Sequence
from functools import cache
from typing import Any


@cache
def _loop(process: int) -> asyncio.AbstractEventLoop:
    """One loop a process: a fork does not inherit its parent's thread."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="tether-async-rewards", daemon=True).start()
    return loop


def gather(awaitables: Sequence[Awaitable[Any]]) -> list[Any]:
    """Run together; a failed one is returned as its exception. Blocks the calling thread."""

    async def together() -> list[Any]:
        return list(await asyncio.gather(*awaitables, return_exceptions=True))

    return asyncio.run_coroutine_threadsafe(together(), _loop(os.getpid())).result()
