# SPDX-License-Identifier: BSD-3-Clause
"""The commands of the service: run it, and move galleries out of it and into it."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dualqml.cli._arguments import Command, add_force_argument, add_json_argument
from dualqml.cli._output import say, say_json
from dualqml.cli.exit_codes import FAILED, OK
from dualqml.exceptions import FileError, MissingDependencyError, RecognitionError
from dualqml.service.settings import Settings

if TYPE_CHECKING:
    from dualqml.service.database import Database


def serve(options: argparse.Namespace) -> int:
    """Run the service until it is stopped."""
    _need_packages()
    from dualqml.service.server import serve as run

    if (options.tls_cert is None) != (options.tls_key is None):
        raise RecognitionError("Give both --tls-cert and --tls-key, or neither")
    run(
        _settings(options),
        lambda line: say(line),
        quiet=options.quiet,
        another_key=options.new_admin_key,
    )
    return OK


def export(options: argparse.Namespace) -> int:
    """Write a gallery to a file."""
    from dualqml._files import write_atomically

    if options.output.exists() and not options.force:
        raise FileError(f"{options.output} is there already; replace it with --force")
    database = _database(options)
    from dualqml.service.transfer import export_bytes

    with database.read() as connection:
        gallery_id = _gallery_id(database, options.gallery)
        content, _ = export_bytes(connection, gallery_id)
    write_atomically(options.output, [content], private=True)
    if options.json:
        say_json({"id": gallery_id, "file": str(options.output)})
    else:
        say(
            f"The gallery is in {options.output}. It has samples and names: keep it "
            "safe."
        )
    return OK


def import_(options: argparse.Namespace) -> int:
    """Make a gallery from a file."""
    database = _database(options)
    from dualqml.service.audit import record
    from dualqml.service.transfer import import_bytes

    try:
        content = options.file.read_bytes()
    except OSError as error:
        raise FileError(f"{options.file} cannot be read: {error.strerror}") from error
    with database.write() as connection:
        gallery_id = import_bytes(connection, content, name=options.name)
        record(database, connection, "command", "gallery.import", gallery_id=gallery_id)
    if options.json:
        say_json({"id": gallery_id})
    else:
        say(f"The new gallery has the id {gallery_id}.")
    return OK


def receipt(options: argparse.Namespace) -> int:
    """Check a receipt against an exported gallery."""
    _need_packages()
    from dualqml.persistence.tensors import strict_json
    from dualqml.service.transfer import check_receipt

    try:
        record = strict_json(options.receipt.read_text("utf-8"))
        content = options.gallery.read_bytes()
    except OSError as error:
        raise FileError(f"A file cannot be read: {error}") from error
    try:
        right = check_receipt(record, content)
    except (KeyError, TypeError, AttributeError) as error:
        raise RecognitionError(f"{options.receipt} is not a receipt") from error
    if options.json:
        say_json({"right": right})
        return OK if right else FAILED
    if right:
        say(
            "The receipt is right: the model after the erasure is a fresh fit to this "
            "gallery, and the erased person is not in it."
        )
        return OK
    say(
        "The receipt does not fit this gallery: it was changed, or the gallery was "
        "changed after the erasure."
    )
    return FAILED


def _need_packages() -> None:
    import importlib.util

    for package in ("alembic", "fastapi", "sqlalchemy", "structlog", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            raise MissingDependencyError(
                "The service needs optional packages: install dualqml[service]"
            )


def _settings(options: argparse.Namespace) -> Settings:
    names = set(Settings.__dataclass_fields__) & set(vars(options))
    values = {name: getattr(options, name) for name in names}
    for name, value in values.items():
        if isinstance(value, Path):
            values[name] = str(value.absolute())
    return Settings(**values)


def _database(options: argparse.Namespace) -> "Database":
    _need_packages()
    from dualqml.service.database import Database

    settings = _settings(options)
    if settings.database_url is None and not Path(settings.data).is_dir():
        raise FileError(f"There is no folder {settings.data}: give that of the service")
    database = Database(settings.database())
    database.migrate()
    return database


def _gallery_id(database: "Database", wanted: str) -> str:
    """The gallery with an id or a name."""
    from sqlalchemy import select

    from dualqml.service.tables import galleries

    with database.read() as connection:
        rows = connection.execute(select(galleries.c.id, galleries.c.name)).all()
    found = [row.id for row in rows if wanted in (row.id, row.name)]
    if len(found) != 1:
        known = ", ".join(f"{row.name} ({row.id})" for row in rows) or "none"
        raise RecognitionError(
            f"{len(found)} galleries are called {wanted!r}; there are: {known}"
        )
    return str(found[0])


def _add_place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("dualqml-data"),
        metavar="DIR",
        help="folder of the database and the models (default: dualqml-data)",
    )
    parser.add_argument(
        "--database-url",
        metavar="URL",
        help="PostgreSQL instead of SQLite: postgresql://user:password@host/name",
    )


def _serve_arguments(parser: argparse.ArgumentParser) -> None:
    _add_place(parser)
    parser.add_argument(
        "--host", default="127.0.0.1", help="address (default: this machine only)"
    )
    parser.add_argument("--port", type=int, default=8420, help="port (default: 8420)")
    parser.add_argument(
        "--workers",
        type=_count,
        default=1,
        metavar="N",
        help="processes that answer requests (default: 1)",
    )
    parser.add_argument(
        "--tls-cert", type=Path, metavar="FILE", help="certificate, for HTTPS"
    )
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="its key")
    parser.add_argument(
        "--new-admin-key",
        action="store_true",
        help="make and show another key that can do everything",
    )
    parser.add_argument(
        "--quiet", action="store_true", help="log warnings and errors only"
    )
    limits = parser.add_argument_group("limits")
    for name, what in _LIMITS.items():
        default = getattr(Settings, name)
        whole = isinstance(default, int)
        limits.add_argument(
            f"--{name.replace('_', '-')}",
            type=_positive_integer if whole else _positive,
            default=default,
            metavar="N",
            help=f"{what} (default: {default if whole else f'{default:g}'})",
        )


#: Limits that the operator may set; their defaults are those of `Settings`.
_LIMITS = {
    "requests_per_second": "most requests of one key, on average",
    "max_galleries": "most galleries",
    "max_files": "most files in one request",
    "max_file_bytes": "largest file",
    "max_body_bytes": "largest request",
    "max_pixels": "most pixels of an image",
    "body_seconds": "longest time in which a request must have arrived",
    "decode_seconds": "longest time for one image",
    "decoders": "processes that decode images, for each worker",
}


def _positive(text: str) -> float:
    value = float(text)
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError("must be a positive number")
    return value


def _positive_integer(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 64:
        raise argparse.ArgumentTypeError("must be from 1 to 64")
    return value


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("gallery", help="name or id of the gallery")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="the file"
    )
    add_force_argument(parser, "an existing file")
    _add_place(parser)
    add_json_argument(parser)


def _import_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="a file of dualqml export")
    parser.add_argument("--name", help="name of the gallery, instead of the file's")
    _add_place(parser)
    add_json_argument(parser)


def _receipt_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("receipt", type=Path, help="the receipt, a JSON file")
    parser.add_argument(
        "gallery", type=Path, help="the gallery, exported after the erasure"
    )
    add_json_argument(parser)


COMMANDS = {
    "serve": Command(
        details="""\
The first start shows a key, once. Open the address in a browser and type the
key, or send it with every request. Ctrl-C stops the service.""",
        examples="""examples:
  dualqml serve
  dualqml serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
  dualqml serve --database-url postgresql://dualqml@127.0.0.1/dualqml""",
        add_arguments=_serve_arguments,
        run=serve,
    ),
    "export": Command(
        details="""\
The file has samples, names and settings, and no pickle. The service may run
meanwhile.""",
        examples="""examples:
  dualqml export Office -o office.gallery
  dualqml export Office -o office.gallery --data /var/lib/dualqml""",
        add_arguments=_export_arguments,
        run=export,
    ),
    "import": Command(
        details="The service may run meanwhile; it builds the model by itself.",
        examples="""examples:
  dualqml import office.gallery
  dualqml import office.gallery --name "Office, old" --data /var/lib/dualqml""",
        add_arguments=_import_arguments,
        run=import_,
    ),
    "receipt": Command(
        details="""\
The model is fitted again from the gallery and compared with the receipt. Export
the gallery after the erasure, before anything else changes.""",
        examples="""examples:
  dualqml receipt receipt.json office.gallery
  dualqml receipt ~/Downloads/receipt.json backup/office.gallery""",
        add_arguments=_receipt_arguments,
        run=receipt,
    ),
}
