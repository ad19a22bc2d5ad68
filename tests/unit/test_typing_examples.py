"""The examples for the type checkers leave nothing out."""

import ast
from pathlib import Path

import zkwire
from tests.support.operation_samples import OPERATIONS
from tests.support.recipe_samples import RECIPES

EXAMPLES = ast.parse((Path(__file__).resolve().parents[1] / "typing_examples.py").read_text())


def test_every_public_name_is_in_the_examples() -> None:
    used = {node.attr for node in ast.walk(EXAMPLES) if isinstance(node, ast.Attribute)} | {
        *RECIPES
    }
    errors = {name for name in zkwire.__all__ if name.endswith("Error")}
    # The recipes for threads are written from those for asyncio: one of the two will do.
    recipes = {name for name in zkwire.__all__ if name.removeprefix("Async") in used}
    assert set(zkwire.__all__) - errors - recipes <= used


def test_every_method_of_a_client_that_is_no_operation_is_in_the_examples() -> None:
    """Operations have samples, whose results are compared with the types of their signatures."""
    used = {node.attr for node in ast.walk(EXAMPLES) if isinstance(node, ast.Attribute)}
    public = {name for name in dir(zkwire.Client) if not name.startswith("_")}
    left_out = {"close", "credentials", "lease_margin", "lease_remaining", "remove_state_listener"}
    assert public - used - OPERATIONS <= left_out | {"session_id", "session_timeout", "state"}
