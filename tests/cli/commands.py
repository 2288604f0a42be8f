"""Running the command in the tests."""

from dualqml.cli.main import main


def run(*arguments):
    return main([str(argument) for argument in arguments])


def probe(people, number):
    """An image of a person that is not in the model."""
    return people.parent / "probes" / f"person {number:02d}" / "4.png"


def run_alone(*arguments):
    """Read photographs in this thread, which loads the networks once for all tests."""
    return run(*arguments, "--jobs", 1)
