# SPDX-License-Identifier: BSD-3-Clause
"""The web page: shells that the browser fills with answers of the API.

A shell holds the headings, the explanations and the forms of one screen. Its data come
by ``fetch`` from ``/v1``, with the cookie of the session. So the page can do nothing
that the API does not allow, and the shells know no data but ids.
"""

from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from dualqml import __version__
from dualqml.service.security import page_session

STATIC = Path(__file__).parent / "static"
"""The folder of style sheet, scripts and icon, for ``/static``."""

SCREENS = {
    "people": ("People", "enrol"),
    "add": ("Add", "enrol"),
    "try": ("Try a photo", "identify"),
    "strangers": ("Strangers", "enrol"),
    "threshold": ("Threshold", "identify"),
    "evaluation": ("Evaluation", "enrol"),
    "erasures": ("Erasures", "enrol"),
}
"""The screens of a gallery: the last part of the address, the name, and the scope that
its data need.
"""

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)


@cache
def environment() -> Environment:
    """The Jinja2 environment of the page.

    Returns
    -------
    Environment
        It escapes all text (autoescape), and a name that a template uses without
        getting it is an error.
    """
    return Environment(
        loader=PackageLoader("dualqml.service"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _render(template: str, **data: Any) -> Response:
    text = environment().get_template(template).render(version=__version__, **data)
    return HTMLResponse(text, headers={"Cache-Control": "no-store"})


def _shell(
    request: Request, screen: str, gallery: str | None = None, subject: str = ""
) -> Response:
    """A screen for those who are signed in; the others go to the login."""
    session = page_session(request)
    if session is None:
        wanted = request.url.path
        if request.url.query:
            wanted += "?" + request.url.query
        return RedirectResponse("/login?next=" + quote(wanted, safe=""), 303)
    return _render(
        f"{screen}.html",
        screen=screen,
        screens=[
            (name, label)
            for name, (label, scope) in SCREENS.items()
            if scope in session.scopes
        ],
        csrf=session.csrf,
        scopes=" ".join(sorted(session.scopes)),
        key_gallery=session.gallery_id or "",
        gallery=gallery or session.gallery_id or "",
        subject=subject,
    )


@router.get("/")
def home(request: Request) -> Response:
    """Go to the login, to the only gallery of the key, or to all galleries.

    Parameters
    ----------
    request : Request
        With or without a session.

    Returns
    -------
    Response
        A redirection.
    """
    session = page_session(request)
    if session is None:
        return RedirectResponse("/login", 303)
    if session.gallery_id is not None:
        first = "people" if "enrol" in session.scopes else "try"
        return RedirectResponse(f"/g/{quote(session.gallery_id)}/{first}", 303)
    return RedirectResponse("/people", 303)


@router.get("/login")
def login() -> Response:
    """The form that takes a key.

    Returns
    -------
    Response
        HTML.
    """
    return _render("login.html", screen="login", csrf="", gallery="", screens=())


@router.get("/people")
def start(request: Request) -> Response:
    """The first run: the demo gallery or a new one. Else on to a gallery.

    Parameters
    ----------
    request : Request
        ``?new`` shows the choice although there are galleries.

    Returns
    -------
    Response
        HTML, or a redirection to the login.
    """
    return _shell(request, "start")


@router.get("/settings")
def settings(request: Request, g: str = "") -> Response:
    """Galleries, keys and backup.

    Parameters
    ----------
    request : Request
        With a session.
    g : str, default=""
        Id of the gallery that the bar goes on to show.

    Returns
    -------
    Response
        HTML, or a redirection to the login.
    """
    return _shell(request, "settings", g)


@router.get("/g/{gallery}/people/{subject}")
def person(request: Request, gallery: str, subject: str) -> Response:
    """One person.

    Parameters
    ----------
    request : Request
        With a session.
    gallery, subject : str
        Their ids. The API decides whether they exist.

    Returns
    -------
    Response
        HTML, or a redirection to the login.
    """
    return _shell(request, "person", gallery, subject)


@router.get("/g/{gallery}/{screen}")
def gallery_screen(request: Request, gallery: str, screen: str) -> Response:
    """A screen of a gallery.

    Parameters
    ----------
    request : Request
        With a session.
    gallery : str
        Its id. The API decides whether it exists.
    screen : str
        One of `SCREENS`.

    Returns
    -------
    Response
        HTML, or a redirection: to the login without a session, to the people for an
        unknown screen.
    """
    if screen not in SCREENS:
        return RedirectResponse(f"/g/{quote(gallery, safe='')}/people", 303)
    return _shell(request, screen, gallery)
