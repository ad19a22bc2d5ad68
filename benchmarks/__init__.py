"""How fast zkwire is, beside other clients and beside what no client can beat.

One command, `python3 -m benchmarks`; README.md says what its figures mean.
"""
