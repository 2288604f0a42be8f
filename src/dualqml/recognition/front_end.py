# SPDX-License-Identifier: BSD-3-Clause
"""How a recogniser reads its samples: from photographs, crops or vectors.

A recogniser remembers it, with the network and the SHA-256 of its weights. Vectors of
another network could not be compared with those that are enrolled.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from dualqml.exceptions import NetworkError, RecognitionError
from dualqml.images.face_networks import SFACE, FaceNetwork

if TYPE_CHECKING:
    from dualqml.extractors import Background
    from dualqml.images import FaceEmbedder

#: Statistics of other people that come with dualqml, by the SHA-256 of the network.
#: `scripts/make_background.py` makes them.
_BACKGROUNDS = {SFACE.sha256: "sface.background"}
#: How faces are found and aligned. It changes when the same photograph gets other
#: features, so that a model never compares features of two ways.
READING_VERSION = 1
#: Digits of a SHA-256 that a message shows.
_SHOWN = 12


@runtime_checkable
class PhotographEmbedder(Protocol):
    """What describes the faces of photographs, such as a `FaceEmbedder`."""

    @property
    def face_network(self) -> FaceNetwork:
        """The network."""

    def transform(self, X: Any) -> Any:
        """One row per photograph."""


@dataclass(frozen=True)
class FrontEnd:
    """How samples are read.

    Attributes
    ----------
    kind : {"photographs", "crops", "vectors"} or None
        What the samples are. None if nobody is enrolled yet.
    network : FaceNetwork or None
        The network that describes the faces of photographs.
    sha256 : str
        SHA-256 of its weights; "" without a network.

    Examples
    --------
    >>> from dualqml.recognition import Recognizer
    >>> Recognizer().front_end.in_words()
    'nobody is enrolled yet'
    """

    kind: Literal["photographs", "crops", "vectors"] | None
    network: FaceNetwork | None = None
    sha256: str = ""

    @classmethod
    def of_photographs(cls, embedder: PhotographEmbedder) -> "FrontEnd":
        """The front end of an embedder.

        Parameters
        ----------
        embedder : FaceEmbedder
            Describes the faces of photographs.

        Returns
        -------
        FrontEnd
            The front end.

        Raises
        ------
        NetworkError
            The file of the network cannot be read.
        """
        network = embedder.face_network
        if network.path is not None:
            # The model may be used from another folder.
            network = replace(network, path=os.path.abspath(network.path))
        return cls("photographs", network, network.sha256())

    def in_words(self) -> str:
        """The front end in words.

        Returns
        -------
        str
            For example "photographs, with the network SFace (SHA-256 0ba9fbfa01b5)".
        """
        if self.kind is None:
            return "nobody is enrolled yet"
        if self.network is None:
            return self.kind
        return (
            f"photographs, with the network {self.network.name} (SHA-256 "
            f"{self.sha256[:_SHOWN]})"
        )

    def checked_network(
        self, path: str | os.PathLike[str] | None = None
    ) -> FaceNetwork:
        """The network, if its weights are those of the model.

        Parameters
        ----------
        path : path, optional
            Where the file is now.

        Returns
        -------
        FaceNetwork
            The network.

        Raises
        ------
        NetworkError
            The file is missing, or has other weights.
        RecognitionError
            The samples are not photographs.
        """
        if self.network is None:
            raise RecognitionError(f"This model is of {self.kind}, not of photographs")
        network = self.network
        if path is not None:
            network = replace(network, path=os.path.abspath(path))
        try:
            found = network.sha256()
        except NetworkError as error:
            raise NetworkError(
                f"{error} The model was made with this network (SHA-256 "
                f"{self.sha256}); say where it is with --network FILE."
            ) from error
        if found != self.sha256:
            raise NetworkError(
                f"{network.path} is not the network of this model: its SHA-256 is "
                f"{found}, not {self.sha256}. Give the right file, or train the model "
                "again."
            )
        return network

    def embedder(
        self, *, network: str | os.PathLike[str] | None = None
    ) -> "FaceEmbedder | None":
        """What describes the faces of photographs.

        Parameters
        ----------
        network : path, optional
            Where the file of the network is now.

        Returns
        -------
        FaceEmbedder or None
            The embedder; None if the samples are not photographs.

        Raises
        ------
        NetworkError
            The file is missing, or has other weights.
        """
        if self.network is None:
            return None
        from dualqml.images.face_steps import FaceEmbedder

        found = self.checked_network(network)
        return FaceEmbedder(
            network=found.path,
            input_size=found.size,
            channels=found.channels,
            mean=found.mean,
            scale=found.scale,
        )

    def as_dict(self) -> dict[str, Any] | None:
        """Plain values for a file; None if the samples are not photographs.

        Returns
        -------
        dict or None
            The values by name.
        """
        if self.network is None:
            return None
        version = {"version": READING_VERSION, "sha256": self.sha256}
        return version | vars(self.network)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> "FrontEnd":
        """The front end of photographs from the values of `as_dict`.

        Parameters
        ----------
        record : dict
            The values, of the right kinds.

        Returns
        -------
        FrontEnd
            The front end.
        """
        names = FaceNetwork.__dataclass_fields__
        network = FaceNetwork(**{name: record[name] for name in names})
        return cls("photographs", network, record["sha256"])


def network_background(embedder: PhotographEmbedder) -> "Background | None":
    """The statistics of other people that come with a network.

    Parameters
    ----------
    embedder : FaceEmbedder
        Describes the faces of photographs.

    Returns
    -------
    Background or None
        The statistics. For SFace these are sums over 151 people with ten photographs
        each; nobody can be recognised from them. None for other networks.
    """
    name = _BACKGROUNDS.get(embedder.face_network.sha256())
    if name is None:
        return None
    from dualqml.extractors import Background
    from dualqml.persistence import load

    with as_file(files("dualqml.recognition") / "backgrounds" / name) as path:
        found = load(path)
    assert isinstance(found, Background)
    return found
