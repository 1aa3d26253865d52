"""Print how many lines each program takes."""

from . import LIBRARIES, PROGRAMS, count_lines, program

print(f"{'':8}", *(f"{library:>8}" for library in LIBRARIES))
for name in PROGRAMS:
    counts = [count_lines(program(name, library)) for library in LIBRARIES]
    print(f"{name:8}", *(f"{count:8}" for count in counts))
