# SPDX-License-Identifier: BSD-3-Clause
"""The exit codes of every command."""

#: A match, or all is done.
OK = 0
#: Some part failed or was left out.
FAILED = 1
#: Wrong use or wrong input. Nothing was changed.
WRONG = 2
#: The person is unknown, or no match.
UNKNOWN = 3
#: There is no face in a photograph.
NO_FACE = 4
#: Ctrl-C.
INTERRUPTED = 130

#: What the help says about each.
MEANINGS = {
    OK: "match, or done",
    FAILED: "some part failed or was left out",
    WRONG: "wrong use or wrong input",
    UNKNOWN: "unknown person, or no match",
    NO_FACE: "no face in a photograph",
    INTERRUPTED: "interrupted",
}
