"""zkwire under asyncio: the same automaton, operations and recipes on an event loop, no thread."""
