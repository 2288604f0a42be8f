# SPDX-License-Identifier: BSD-3-Clause
"""The bodies of requests and answers, as the OpenAPI document shows them."""

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Rate = Annotated[float, Field(gt=0.0, lt=1.0, allow_inf_nan=False)]
Days = Annotated[float, Field(gt=0.0, le=36_500.0, allow_inf_nan=False)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Item = TypeVar("Item")
Scope = Literal["identify", "enrol", "admin"]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Answer(BaseModel):
    model_config = ConfigDict(protected_namespaces=())


class ProblemBody(_Answer):
    """What went wrong (RFC 9457)."""

    type: str = Field(examples=["/problems#not-found"])
    title: str
    status: int
    detail: str
    code: str = Field(description="Stable: write your program against this.")


class KeyBody(_Request):
    """The key that the page was given."""

    key: Annotated[str, StringConstraints(max_length=500)]


class SessionAnswer(_Answer):
    """The session of the page."""

    scopes: list[Scope]
    gallery_id: str | None
    csrf: str


class GalleryBody(_Request):
    """A new gallery."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"name": "Office", "inputs": "photographs"}]},
    )
    name: Name
    inputs: Literal["photographs", "crops", "vectors"] = "photographs"
    size: tuple[
        Annotated[int, Field(ge=8, le=256)], Annotated[int, Field(ge=8, le=256)]
    ] = (32, 32)
    keep_photographs: bool = False
    keep_strangers: bool = False
    stranger_days: Days = 30.0
    retention_days: Days | None = None
    fpir: Rate = 0.01


class GalleryChange(_Request):
    """Changes of a gallery."""

    name: Name | None = None
    keep_photographs: bool | None = None
    keep_strangers: bool | None = None
    stranger_days: Days | None = None
    retention_days: Days | None = None


class ModelAnswer(_Answer):
    """The published model of a gallery."""

    revision: int
    model_id: str | None
    sha256: str | None
    current: bool = Field(description="Whether it knows all changes of the gallery.")
    reason: str | None = Field(description="Why there is no model.")


class TargetAnswer(_Answer):
    """The rate for which the threshold is set."""

    kind: Literal["fpir", "fmr"]
    rate: float


class CalibrationAnswer(_Answer):
    """Where the threshold comes from."""

    threshold: float
    kind: Literal["fpir", "fmr", "given"]
    target: float | None
    achieved: float | None
    low: float | None
    high: float | None
    missed: float | None
    n_comparisons: int
    n_mated: int
    source: str
    prior: bool
    stale: bool = Field(description="Whether the gallery has changed since then.")
    text: str
    created_at: str


class CurrentCalibrationAnswer(CalibrationAnswer):
    """The threshold, thresholds for other rates, and histograms of scores."""

    curve: list[dict[str, Any]] | None
    distributions: dict[str, list[float]] | None
    reason: str | None


class GalleryAnswer(_Answer):
    """A gallery."""

    id: str
    name: str
    inputs: Literal["photographs", "crops", "vectors"]
    size: tuple[int, int]
    keep_photographs: bool
    keep_strangers: bool
    stranger_days: float
    retention_days: float | None
    target: TargetAnswer
    demo: bool
    n_subjects: int
    n_samples: int
    n_strangers: int
    revision: int
    model: ModelAnswer
    calibration: CalibrationAnswer | None
    created_at: str


class SubjectBody(_Request):
    """A new subject."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"name": "Ann Lee"}]}
    )
    name: Name
    expires_at: datetime | None = None


class SubjectChange(_Request):
    """Changes of a subject. ``expires_at: null`` removes the expiry."""

    name: Name | None = None
    expires_at: datetime | None = None


class FindingAnswer(_Answer):
    """Something that may spoil a gallery."""

    kind: Literal["same person", "fits another", "outlier", "few samples"]
    text: str
    subject_id: str
    name: str
    sample_id: str | None
    other_id: str | None
    other_name: str | None
    score: float | None
    severity: float


class SubjectAnswer(_Answer):
    """A subject."""

    id: str
    name: str
    n_samples: int
    expires_at: str | None
    created_at: str
    findings: list[FindingAnswer]


class SampleAnswer(_Answer):
    """A sample of a subject."""

    id: str
    subject_id: str
    name: str
    quality: float | None
    has_image: bool
    created_at: str
    fit: float | None = Field(description="Its score in the last check, held out.")
    findings: list[FindingAnswer]


class Outcome(_Answer):
    """What became of one file."""

    name: str
    status: Literal["enrolled", "refused"]
    subject_id: str | None = None
    sample_id: str | None = None
    quality: float | None = None
    remarks: list[str] = []
    code: str | None = None
    detail: str | None = None


class EnrollAnswer(_Answer):
    """What became of every file."""

    outcomes: list[Outcome]
    enrolled: int
    refused: int
    revision: int


class Box(_Answer):
    """Where a face is, in pixels of the upright photograph."""

    top: int
    left: int
    bottom: int
    right: int


class SubjectName(_Answer):
    """A subject, in short."""

    id: str
    name: str


class CandidateAnswer(_Answer):
    """A subject that is similar to a face."""

    subject_id: str
    name: str
    score: float
    probability: float | None


class FaceAnswer(_Answer):
    """Who is on a face, or that nobody enrolled is."""

    box: Box | None
    quality: float | None
    detection: float | None
    decision: Literal["match", "unknown"]
    subject: SubjectName | None
    score: float
    unknown_probability: float | None
    candidates: list[CandidateAnswer]
    stranger_id: str | None
    explanation: dict[str, Any] | None


class CalibrationShort(_Answer):
    """Where the threshold of a decision comes from, in short."""

    kind: Literal["fpir", "fmr", "given"]
    target: float | None
    achieved: float | None
    low: float | None
    high: float | None
    prior: bool
    stale: bool


class IdentifyAnswer(_Answer):
    """All faces of a photograph."""

    revision: int
    model_id: str
    threshold: float
    calibration: CalibrationShort
    width: int | None
    height: int | None
    faces: list[FaceAnswer]


class VerifyAnswer(_Answer):
    """Whether a face is that of a subject."""

    decision: Literal["match", "no match"]
    subject: SubjectName
    score: float
    threshold: float
    probability: float | None
    revision: int
    model_id: str


class DetectedFace(_Answer):
    """A face, without a name."""

    box: Box
    quality: float
    weakness: str
    detection: float


class DetectAnswer(_Answer):
    """The faces of a photograph."""

    width: int
    height: int
    faces: list[DetectedFace]


class CalibrationBody(_Request):
    """How to set the threshold: for a rate, or by hand. Give one of the three."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"fpir": 0.01}]}
    )
    fpir: Rate | None = None
    fmr: Rate | None = None
    threshold: Number | None = None


class StrangerChange(_Request):
    """Whether a stranger is ignored."""

    state: Literal["new", "ignored"]


class StrangerName(_Request):
    """Who a stranger is: a new name, or an enrolled subject."""

    name: Name | None = None
    subject_id: str | None = None


class NearestSubject(_Answer):
    """The most similar subject."""

    subject_id: str
    name: str
    score: float


class StrangerAnswer(_Answer):
    """An unknown person."""

    id: str
    state: Literal["new", "ignored"]
    n_seen: int
    first_seen: str
    last_seen: str
    expires_at: str
    has_image: bool
    nearest: NearestSubject | None
    not_subject: SubjectName | None


class StrangerKept(_Answer):
    """The groups that faces were put into."""

    stranger_ids: list[str]


class HealthAnswer(_Answer):
    """What may spoil a gallery."""

    revision: int
    current: bool
    n_checked: int
    not_checked: list[str]
    findings: list[FindingAnswer]
    created_at: str


class EvaluationAnswer(_Answer):
    """Errors, with people and samples left out in turn."""

    revision: int
    current: bool
    n_mated: int
    n_strangers: int
    cmc: list[float]
    det: dict[str, list[float]]
    open_set: dict[str, list[float]]
    created_at: str


class ModelHash(_Answer):
    """A model in a receipt."""

    revision: int
    model_id: str | None
    sha256: str | None


class ErasureAnswer(_Answer):
    """A receipt. ``digest`` is the SHA-256 of all other fields."""

    id: str
    gallery_id: str
    kind: Literal["subject", "sample", "stranger", "gallery", "retention"]
    target_id: str
    counts: dict[str, int]
    model_before: ModelHash | None
    model_after: ModelHash | None
    storage: dict[str, Any]
    requested_at: str
    completed_at: str
    digest: str


class JobAnswer(_Answer):
    """Work that goes on after the answer."""

    id: str
    kind: Literal["demo", "health", "evaluation"]
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    done: int
    total: int | None
    detail: str
    gallery_id: str
    result: dict[str, Any] | None
    created_at: str


class KeyRequest(_Request):
    """A new key."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"label": "door", "scopes": ["identify"]}]},
    )
    label: Name
    scopes: list[Scope] = Field(min_length=1, max_length=3)
    gallery_id: str | None = None
    expires_at: datetime | None = None


class KeyAnswer(_Answer):
    """A key, without the key itself."""

    id: str
    label: str
    scopes: list[Scope]
    gallery_id: str | None
    expires_at: str | None
    created_at: str


class NewKeyAnswer(KeyAnswer):
    """A new key. It is shown once."""

    key: str


class AuditEntry(_Answer):
    """Who did what, when."""

    seq: int
    at: str
    actor: str
    action: str
    gallery_id: str | None
    target_id: str | None
    details: dict[str, Any]
    hash: str


class AuditCheck(_Answer):
    """Whether the hashes of the audit are right."""

    ok: bool
    entries: int
    head: str
    first_wrong: int | None


class Probe(_Answer):
    """A picture of the demo that is not enrolled."""

    id: str
    person: str
    enrolled: bool


class Page(_Answer, Generic[Item]):
    """A part of a list."""

    items: list[Item]
    next: str | None = Field(description="Send it as ``after`` for the next part.")
    total: int
