# SPDX-License-Identifier: BSD-3-Clause
"""The Jinja2 templates of all HTML that the package writes, and their renderer."""

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


@cache
def environment() -> Environment:
    """The Jinja2 environment of the templates in this folder.

    Returns
    -------
    Environment
        It escapes all text (autoescape), and a name that a template uses without
        getting it is an error.
    """
    return Environment(
        loader=PackageLoader("dualqml.experiments"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render(template: str, **data: Any) -> Markup:
    """Fill in a template.

    Parameters
    ----------
    template : str
        Name of its file.
    **data : dict
        Plain data. Text is escaped.

    Returns
    -------
    Markup
        HTML, which other templates insert as it is.

    Examples
    --------
    >>> from dualqml.experiments.templates import render
    >>> print(render("versions.html", counts={"<b> 1.0": 2}, finished=[]))
    <p>All results: &lt;b&gt; 1.0.</p>
    <BLANKLINE>
    """
    return Markup(environment().get_template(template).render(data))
