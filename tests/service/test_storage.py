"""The same promises on SQLite and on a real PostgreSQL."""

import hashlib
import threading

import numpy as np
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import insert, select, text, update
from sqlalchemy.exc import DatabaseError as DriverError

from dualqml.recognition import Recognizer
from dualqml.service import audit, erasure, people, strangers
from dualqml.service import builder as builder_module
from dualqml.service.builder import Builder, rebuilt
from dualqml.service.database import (
    Database,
    DatabaseUnavailableError,
    ReadCache,
)
from dualqml.service.models import ModelCache, galleries_due, model_path
from dualqml.service.problems import Problem
from dualqml.service.security import find_key, new_key
from dualqml.service.settings import Settings
from dualqml.service.tables import (
    audit as audit_table,
)
from dualqml.service.tables import (
    calibrations,
    erasures,
    metadata,
    models,
    reports,
    samples,
    subjects,
)
from dualqml.service.transfer import export_bytes, import_bytes, model_of_export
from dualqml.service.worker import Worker
from tests.service import postgresql


@pytest.fixture(scope="module")
def server():
    if postgresql.find_programs() is None:
        pytest.skip("PostgreSQL is not installed")
    with postgresql.running() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request, tmp_path):
    url = None
    if request.param == "postgresql":
        url = request.getfixturevalue("server")
        database = Database(Settings("", database_url=url).database())
        with database.write() as connection:
            connection.execute(text("DROP SCHEMA public CASCADE"))
            connection.execute(text("CREATE SCHEMA public"))
        database.close()
    return Settings(str(tmp_path), database_url=url, quiet_seconds=0.0)


@pytest.fixture
def database(settings):
    found = Database(settings.database())
    found.migrate()
    yield found
    found.close()


@pytest.fixture
def builder(database, settings):
    return Builder(database, settings.models)


def rows(person, count=3, width=16):
    rng = np.random.default_rng(person)
    centre = rng.normal(size=width)
    return [
        people.vector_bytes(centre + 0.2 * rng.normal(size=width)) for _ in range(count)
    ]


def enrol(database, gallery_id, names):
    with database.write() as connection:
        gallery = people.gallery_row(connection, gallery_id, lock=True)
        ids = []
        for number, name in enumerate(names):
            own = people.create_subject(connection, gallery_id, name)
            new = [people.NewSample("", row) for row in rows(number)]
            people.add_samples(connection, gallery, own, new)
            ids.append(own)
        people.touch(connection, gallery_id)
    return ids


@pytest.fixture
def gallery(database):
    with database.write() as connection:
        found = people.create_gallery(connection, name="Office", inputs="vectors")
    return found, enrol(database, found, ["Ann", "Bob", "Cid", "Dee", "Eve"])


def published(database, gallery_id):
    with database.read() as connection:
        query = select(models).where(models.c.gallery_id == gallery_id)
        return connection.execute(query).mappings().one()


def test_migrating_twice_changes_nothing(database):
    database.migrate()
    with database.read() as connection:
        names = set(database.engine.dialect.get_table_names(connection, schema=None))
    assert set(metadata.tables) | {"alembic_version"} == names


def test_the_migrations_make_the_tables_that_the_code_uses(database):
    with database.read() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, metadata) == []


def test_a_change_that_fails_is_not_made_at_all(database):
    def half():
        with database.write() as connection:
            people.create_gallery(connection, name="Office")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half()
    with database.read() as connection:
        assert connection.execute(select(metadata.tables["galleries"])).first() is None


def test_a_name_belongs_to_one_subject_of_a_gallery(database, gallery):
    gallery_id, ids = gallery
    with pytest.raises(Problem, match="of this name"), database.write() as connection:
        people.create_subject(connection, gallery_id, "Ann")
    with pytest.raises(Problem) as found, database.write() as connection:
        people.change_subject(connection, gallery_id, ids[0], {"name": "Bob"})
    assert found.value.code == "conflict"
    with database.write() as connection:
        other = people.create_gallery(connection, name="Home", inputs="vectors")
        people.create_subject(connection, other, "Ann")


def test_vectors_of_another_length_are_refused(database, gallery):
    gallery_id, ids = gallery
    short = people.NewSample("", people.vector_bytes([1, 2, 3]))
    with database.write() as connection:
        row = people.gallery_row(connection, gallery_id)
        with pytest.raises(Problem, match="16 values, not 3"):
            people.add_samples(connection, row, ids[0], [short])


def test_the_audit_can_only_be_appended_to(database, gallery):
    with database.write() as connection:
        for number in range(3):
            audit.record(database, connection, "service", "test", number=number)
    for change in (
        update(audit_table).values(action="other"),
        audit_table.delete(),
    ):
        with pytest.raises(DriverError), database.write() as connection:
            connection.execute(change)
    with database.read() as connection:
        assert audit.check_chain(connection)["ok"]


def test_a_forged_entry_of_the_audit_is_found(database):
    with database.write() as connection:
        first = audit.record(database, connection, "service", "test")
        connection.execute(
            insert(audit_table).values(
                seq=first + 1,
                at="2026-01-01T00:00:00.000000Z",
                actor="service",
                action="forged",
                details={},
                hash="0" * 64,
            )
        )
    with database.read() as connection:
        found = audit.check_chain(connection)
    assert not found["ok"]
    assert found["first_wrong"] == first + 1


def test_entries_of_threads_are_one_chain(database):
    def append():
        for _ in range(10):
            with database.write() as connection:
                audit.record(database, connection, "service", "test")

    threads = [threading.Thread(target=append) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.read() as connection:
        found = audit.check_chain(connection)
    assert found["ok"]
    assert found["entries"] == 40


def test_a_model_is_built_from_the_database_alone(database, builder, gallery, settings):
    gallery_id, ids = gallery
    assert galleries_due(database) == [gallery_id]
    revision = builder.build(gallery_id)
    assert galleries_due(database) == []
    path = model_path(settings.models, gallery_id, revision)
    assert (
        published(database, gallery_id)["sha256"]
        == hashlib.sha256(path.read_bytes()).hexdigest()
    )
    found = Recognizer.load(path)
    assert found.subjects() == sorted(ids)
    assert b"Ann" not in path.read_bytes()


def test_a_model_built_step_by_step_has_the_bytes_of_a_new_one(
    database, builder, gallery, settings, tmp_path
):
    gallery_id, ids = gallery
    builder.build(gallery_id)
    enrol(database, gallery_id, ["Fay"])
    builder.build(gallery_id)
    with database.write() as connection:
        erasure.erase_subject(database, connection, gallery_id, ids[1], actor="test")
    revision = builder.build(gallery_id)
    with database.read() as connection:
        rebuilt(connection, gallery_id).save(tmp_path / "again")
    path = model_path(settings.models, gallery_id, revision)
    assert path.read_bytes() == (tmp_path / "again").read_bytes()
    # A builder of a new process has no recogniser to start from.
    with database.write() as connection:
        people.touch(connection, gallery_id)
    revision = Builder(database, settings.models).build(gallery_id)
    path = model_path(settings.models, gallery_id, revision)
    assert path.read_bytes() == (tmp_path / "again").read_bytes()


def test_a_damaged_model_is_built_again(database, builder, gallery, settings):
    gallery_id, _ = gallery
    revision = builder.build(gallery_id)
    path = model_path(settings.models, gallery_id, revision)
    before = path.read_bytes()
    path.write_bytes(before[:-1])
    again = Builder(database, settings.models)
    again.check_files()
    assert galleries_due(database) == [gallery_id]
    again.build(gallery_id)
    assert path.read_bytes() == before


def test_readers_never_see_an_old_model_after_publication(
    database, builder, gallery, settings
):
    gallery_id, ids = gallery
    cache = ModelCache(settings.models)
    builder.build(gallery_id)
    readers = ReadCache(database)
    assert ids[0] in cache.get(readers, gallery_id).subjects
    with database.write() as connection:
        erasure.erase_subject(database, connection, gallery_id, ids[0], actor="test")
    builder.build(gallery_id)
    readers.refresh()
    assert ids[0] not in cache.get(readers, gallery_id).subjects
    assert len(list((settings.models / gallery_id).iterdir())) == 1


def test_a_slow_builder_does_not_bring_an_old_model_back(
    database, builder, gallery, settings, monkeypatch
):
    gallery_id, ids = gallery
    plain = builder_module._sha256

    def meanwhile(path):
        # Between the fit and its publication somebody is erased.
        monkeypatch.setattr(builder_module, "_sha256", plain)
        found = plain(path)
        with database.write() as connection:
            erasure.erase_subject(
                database, connection, gallery_id, ids[0], actor="test"
            )
        Builder(database, settings.models).build(gallery_id)
        return found

    monkeypatch.setattr(builder_module, "_sha256", meanwhile)
    assert builder.build(gallery_id) is None
    assert galleries_due(database) == []
    model = ModelCache(settings.models).get(ReadCache(database), gallery_id)
    assert ids[0] not in model.subjects
    assert len(list((settings.models / gallery_id).iterdir())) == 1


def test_an_erasure_is_completed_after_the_model(database, gallery, settings):
    gallery_id, ids = gallery
    worker = Worker(database, settings)
    while worker.step():
        pass
    before = published(database, gallery_id)
    with database.write() as connection:
        erasure_id = erasure.erase_subject(
            database, connection, gallery_id, ids[0], actor="test"
        )
    # Killed here, a new process goes on.
    worker = Worker(database, settings)
    while worker.step():
        pass
    with database.read() as connection:
        row = (
            connection.execute(select(erasures).where(erasures.c.id == erasure_id))
            .mappings()
            .one()
        )
    receipt = row["record"]
    assert row["state"] == "done"
    assert receipt["counts"]["samples"] == 3
    assert receipt["model_before"]["sha256"] == before["sha256"]
    assert receipt["model_after"]["sha256"] != before["sha256"]
    rest = {name: value for name, value in receipt.items() if name != "digest"}
    assert audit.digest(rest) == receipt["digest"]
    assert receipt["storage"]["engine"] == database.name
    with database.read() as connection:
        found = rebuilt(connection, gallery_id)
        assert found.model_id == receipt["model_after"]["model_id"]


def test_an_erasure_removes_what_was_measured(database, gallery, builder):
    gallery_id, ids = gallery
    builder.build(gallery_id)
    with database.write() as connection:
        connection.execute(
            insert(reports).values(
                gallery_id=gallery_id,
                kind="health",
                revision=1,
                record={"of": ids[0]},
                created_at="",
            )
        )
        erasure.erase_samples(
            database,
            connection,
            gallery_id,
            [connection.execute(select(samples.c.id)).scalars().first()],
            actor="test",
        )
        assert connection.execute(select(reports)).first() is None
        kept = connection.execute(select(calibrations.c.record)).scalar_one()
    # Only the number stays of a measured threshold.
    assert kept["kind"] == "given"
    assert kept["n_mated"] == kept["n_comparisons"] == 0


def test_a_threshold_is_measured_again_when_it_is_quiet(database, gallery, settings):
    gallery_id, ids = gallery
    worker = Worker(database, settings)
    for _ in range(200):
        worker.step()
    with database.write() as connection:
        erasure.erase_subject(database, connection, gallery_id, ids[0], actor="test")
    record = {}
    for _ in range(2000):
        worker.step()
        with database.read() as connection:
            row = connection.execute(
                select(calibrations.c.record, calibrations.c.curve)
            ).one()
        if row.record["kind"] == "fpir" and row.curve is not None:
            record = row.record
            break
    assert record["model_id"] == published(database, gallery_id)["model_id"]
    assert row.curve["curve"]


def test_people_expire(database, gallery, settings):
    gallery_id, ids = gallery
    worker = Worker(database, settings)
    with database.write() as connection:
        people.change_subject(
            connection, gallery_id, ids[2], {"expires_at": "2020-01-01T00:00:00Z"}
        )
    for _ in range(50):
        worker.step()
    with database.read() as connection:
        left = set(connection.execute(select(subjects.c.id)).scalars())
        kinds = [
            r["kind"] for r in connection.execute(select(erasures.c.record)).scalars()
        ]
    assert left == set(ids) - {ids[2]}
    assert kinds == ["retention"]


def test_strangers_are_grouped_named_and_erased(database, gallery, builder):
    gallery_id, _ = gallery
    builder.build(gallery_id)
    with database.write() as connection:
        row = people.gallery_row(connection, gallery_id)
        same = [
            strangers.remember(connection, row, one, limit=0.6) for one in rows(77, 2)
        ]
        other = strangers.remember(connection, row, rows(78, 1)[0], limit=0.6)
    assert same[0] == same[1] != other
    with database.write() as connection:
        row = people.gallery_row(connection, gallery_id, lock=True)
        zoe = people.create_subject(connection, gallery_id, "Zoe")
        assert len(strangers.enroll_cluster(connection, row, same[0], zoe)) == 2
        erasure.erase_stranger(database, connection, gallery_id, other, actor="test")
    builder.build(gallery_id)
    with database.read() as connection:
        assert people.counts(connection, gallery_id) == {
            "n_subjects": 6,
            "n_samples": 17,
            "n_strangers": 0,
        }


def test_a_gallery_goes_out_and_comes_back(database, gallery, builder):
    gallery_id, _ = gallery
    builder.build(gallery_id)
    with database.read() as connection:
        content, _ = export_bytes(connection, gallery_id)
    assert (
        model_of_export(content).model_id == published(database, gallery_id)["model_id"]
    )
    with database.write() as connection:
        again = import_bytes(connection, content)
        assert people.counts(connection, again)["n_samples"] == 15
    with database.write() as connection:
        erasure.erase_gallery(database, connection, gallery_id, actor="test")
        erasure.erase_gallery(database, connection, again, actor="test")
    with database.write() as connection:
        # With its old ids, and so the same model.
        back = import_bytes(connection, content)
    builder.build(back)
    assert published(database, back)["model_id"] == model_of_export(content).model_id


@pytest.mark.parametrize("cut", [0, 1, 100, 1000, -1])
def test_damaged_files_are_refused(database, gallery, cut):
    with database.read() as connection:
        content, _ = export_bytes(connection, gallery[0])
    with pytest.raises(Problem) as found, database.write() as connection:
        import_bytes(connection, content[:cut])
    assert found.value.code == "bad-file"


def test_keys_are_kept_as_hashes(database):
    with database.write() as connection:
        _, key = new_key(connection, label="door", scopes=["identify"])
        _, old = new_key(
            connection, label="old", scopes=["admin"], expires_at="2020-01-01T00:00:00Z"
        )
    with database.read() as connection:
        assert find_key(connection, key).scopes == {"identify"}
        assert find_key(connection, old) is None
        assert find_key(connection, key + "x") is None
        kept = connection.execute(select(metadata.tables["keys"])).all()
    assert key not in repr(kept)


def test_a_database_that_is_not_there_is_one_clear_error():
    port = postgresql.free_port()
    url = Settings("", database_url=f"postgresql://me:secret@127.0.0.1:{port}/x")
    database = Database(url.database())
    with pytest.raises(DatabaseUnavailableError) as found:
        database.migrate()
    assert "secret" not in str(found.value)
    with pytest.raises(DatabaseUnavailableError, match="SQLite or PostgreSQL"):
        Database("mysql://localhost/x")
