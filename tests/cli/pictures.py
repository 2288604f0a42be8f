"""Files of photographs for the tests of commands: faces of ORL on a wall, and bad ones.

`tests.photographs` makes the pixels.
"""

import struct
import zlib

import numpy as np
import pytest

from tests.photographs import on_a_wall

Image = pytest.importorskip("PIL.Image", reason="dualqml[faces] is not installed")

#: Files that are used, with what the note says.
NOTED = {
    "cmyk.jpg": "its colours are for printing (CMYK); they are converted",
    "deep.png": "it has 16 bits per colour; 8 are used",
    "moves.gif": "it has 2 frames; the first is used",
}
#: Files that cannot be used, with what the reason says.
LEFT_OUT = {
    "wall.png": "no face was found. Take a photograph",
    "three.png": "3 faces of similar size were found",
    "text.jpg": "not an image of a known format",
    "cut.jpg": "truncated",
    "empty.jpg": "the file is empty",
    "bomb.png": "refused as too large",
    "phone.heic": "a HEIC photograph, which needs the package pillow-heif",
}


def picture(face, *, top=40, left=60, times=1.5):
    """One face on a wall, as 8-bit grey pixels."""
    return on_a_wall((face, times, top, left))


def save(pixels, path, **options):
    """Write pixels to a file, and make its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    return path


def save_people(folder, faces, people, numbers):
    """One folder for each person, with some of the person's faces on walls."""
    for person in people:
        for number in numbers:
            shift = {"top": 30 + 2 * number, "left": 50 + 3 * number}
            pixels = picture(faces[person, number], **shift)
            save(pixels, folder / f"p{person:02d}" / f"{number}.png")
    return folder


def several(faces, *times):
    """Faces of several people side by side, each so much enlarged."""
    places = enumerate(zip(faces, times, strict=True))
    pastes = [(face, size, 20, 20 + 180 * place) for place, (face, size) in places]
    return on_a_wall(*pastes, shape=(264, 40 + 180 * len(times)))


def save_bad(folder, faces):
    """One file of each kind of `NOTED` and `LEFT_OUT`; the faces are of one person."""
    folder.mkdir(parents=True, exist_ok=True)
    save(np.full((200, 200), 128, np.uint8), folder / "wall.png")
    save(several(faces[:3], 1.5, 1.5, 1.5), folder / "three.png")
    (folder / "text.jpg").write_text("Dear Ann, the photograph follows.")
    save(picture(faces[3]), folder / "whole.jpg")
    content = (folder / "whole.jpg").read_bytes()
    (folder / "whole.jpg").unlink()
    (folder / "cut.jpg").write_bytes(content[: len(content) // 2])
    (folder / "empty.jpg").touch()
    _save_bomb(folder / "bomb.png")
    (folder / "phone.heic").write_bytes(
        b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(99)
    )
    image = Image.fromarray(picture(faces[4]))
    image.convert("CMYK").save(folder / "cmyk.jpg")
    save(picture(faces[5]).astype(np.uint16) * 257, folder / "deep.png")
    frames = [Image.fromarray(picture(faces[k])) for k in (6, 7)]
    frames[0].save(folder / "moves.gif", save_all=True, append_images=frames[1:])


def _save_bomb(path, side=20_000):
    """A black PNG of a few kilobytes that would be decoded to 400 megabytes."""
    row = bytes(1 + side // 8)
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    with path.open("wb") as stream:
        stream.write(b"\x89PNG\r\n\x1a\n")
        for name, data in ((b"IHDR", header), (b"IDAT", packed), (b"IEND", b"")):
            stream.write(struct.pack(">I", len(data)) + name + data)
            stream.write(struct.pack(">I", zlib.crc32(name + data)))
