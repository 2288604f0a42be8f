# SPDX-License-Identifier: BSD-3-Clause
"""Check the built documentation: links lead somewhere, and all it loads is local.

``python scripts/check_site.py FOLDER`` reads every HTML page and style of a folder. It
lists each internal link or anchor that leads nowhere, and each script, style, font or
image that a browser would load from another machine. It ends with exit code 1 if there
is one.
"""

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Attributes from which a browser loads by itself.
LOADED = {
    ("audio", "src"),
    ("iframe", "src"),
    ("image", "href"),
    ("img", "src"),
    ("input", "src"),
    ("script", "src"),
    ("source", "src"),
    ("use", "href"),
    ("video", "src"),
}
#: Relations of links in the head that load nothing.
QUIET = {"author", "canonical", "index", "license", "next", "prev", "search", "up"}


class Page(HTMLParser):
    """The anchors of a page, where its links lead, and what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = {"", "top"}
        self.links: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the anchors and addresses of a tag."""
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        for name, value in values.items():
            if (tag, name) in LOADED:
                self.loaded.append(value)
            elif name == "srcset":
                self.loaded += [part.split()[0] for part in value.split(",")]
            elif name == "style":
                self.loaded += addresses(value)
        if tag == "link" and not QUIET & set(values.get("rel", "").split()):
            self.loaded.append(values.get("href", ""))
        elif tag == "a" and "href" in values:
            self.links.append(values["href"])


def addresses(style: str) -> list[str]:
    """What a style loads."""
    return re.findall(r"url\(\s*[\"']?([^\"')]+)", style) + re.findall(
        r"@import\s+[\"']([^\"']+)", style
    )


def problems(folder: Path) -> Iterator[str]:
    """Describe everything that is wrong."""
    pages: dict[Path, Page] = {}
    for path in sorted(folder.rglob("*.html")):
        if "_static" in path.parts:  # templates
            continue
        page = pages[path.resolve()] = Page()
        page.feed(path.read_text(encoding="utf-8"))
    for path, page in pages.items():
        name = path.relative_to(folder.resolve())
        for address in page.loaded:
            if urlsplit(address).netloc:
                yield f"{name} loads {address}"
        for address in page.links + page.loaded:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = path
            if parts.path:
                target = (path.parent / unquote(parts.path)).resolve()
            if not target.exists():
                yield f"{name} has a link to {address}, which does not exist"
            elif target in pages:
                anchor = unquote(parts.fragment)
                if anchor not in pages[target].anchors:
                    yield f"{name} has a link to {address}: no such anchor"
    for path in sorted(folder.rglob("*.css")):
        for address in addresses(path.read_text(encoding="utf-8")):
            if urlsplit(address).netloc:
                yield f"{path.relative_to(folder)} loads {address}"


def main() -> int:
    """Print the problems of the folder that is named; the exit code."""
    folder = Path(sys.argv[1])
    if not (folder / "index.html").is_file():
        print(f"{folder} has no index.html: build the documentation first")
        return 1
    found = list(problems(folder))
    print("\n".join(found) if found else "All links and anchors lead somewhere.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
