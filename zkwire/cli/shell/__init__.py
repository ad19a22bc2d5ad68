"""The shell, and the completion of command lines in it and in other shells."""
