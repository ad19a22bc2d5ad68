"""Bugs that are planted into the source of the package: the suite must find each of them.

Each layer of the package has its TOML file here, with an entry for each bug:

    [[bug]]
    rule = "the sentence of a docstring that the bug breaks"
    module = "zkwire/wire/paths.py"
    text = '''what stands there exactly once'''
    becomes = '''what the bug makes of it'''
    found_by = ["test_parent"]

``module`` may be a folder: then one of its files has the text, whichever that is by now.
A test is named without its file, or with it where two files have one of that name.
The tests named there run on the package with this one bug in it, and one of them must fail.
"""
