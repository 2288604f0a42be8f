# SPDX-License-Identifier: BSD-3-Clause
"""What is wrong with a value of a model, and where it is."""

from dualqml._text import printable

#: Characters of a message about a value, which may be a large one.
_LONGEST_MESSAGE = 500

#: Where a value is: names of parameters and attributes, keys and places in lists.
#: A text would be copied for every value, and names in a file may be very long.
Path = tuple[str, ...]


class ValueProblem(ValueError):
    """What cannot be saved or loaded, and where it is."""

    def __init__(self, path: Path, what: str) -> None:
        # A file may have chosen the names.
        where = ".".join(printable(name, 80) for name in path)
        what = printable(what, _LONGEST_MESSAGE)
        super().__init__(f"{where or 'the model'} {what}")
