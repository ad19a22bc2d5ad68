"""Commands for long runs: chaos, fuzzing, exploration."""
