import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from math import cos, radians, sin
from threading import Barrier, BrokenBarrierError, Event, Timer, get_ident

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from dualqml.exceptions import (
    DatabaseError,
    MissingDependencyError,
    NetworkError,
    NoFaceError,
    PoorFaceError,
    SeveralFacesError,
)
from dualqml.images import faces
from dualqml.images.face_networks import (
    LEAST_SCORE,
    SFACE,
    YUNET,
    FaceNetwork,
    import_opencv,
)
from dualqml.images.faces import (
    DescribedFace,
    Face,
    PhotographFaces,
    align_face,
    describe_face,
    detect_faces,
    find_faces,
    read_faces,
)
from dualqml.images.files import read_photograph
from tests.photographs import (
    enlarged,
    load_faces,
    on_a_wall,
    real_photographs,
    turned,
)

image_module = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def orl():
    return load_faces()


@pytest.fixture(scope="module")
def cv2(orl):
    return import_opencv()


@pytest.fixture(scope="module")
def walls(orl):
    """Photographs of six people."""
    return [on_a_wall((orl[10 * k], 2, 20, 40)) for k in range(6)]


@pytest.fixture
def searched(orl, monkeypatch):
    """The shapes of what is searched, by a detector that finds nothing."""
    shapes = []

    class Detector:
        def setInputSize(self, size):
            self.size = size

        def detect(self, pixels):
            assert pixels.shape[1::-1] == self.size
            shapes.append(pixels.shape)
            return 0, None

    monkeypatch.setattr(faces, "face_detector", Detector)
    return shapes


def in_colour(pixels):
    return np.stack([pixels] * 3, axis=2)


def row_of(face):
    """A face as OpenCV's own functions take it."""
    top, left, bottom, right = face.box
    points = [x for row, column in face.landmarks for x in (column, row)]
    row = [left, top, right - left, bottom - top, *points, face.score]
    return np.array(row, dtype=np.float32)


def a_face(side=100, left=0, **quality):
    points = tuple((30.0, 30.0 + k) for k in range(5))
    return Face((0, left, side, left + side), points, **{"score": 0.9} | quality)


class TestFindFaces:
    @pytest.mark.parametrize(("times", "corner"), [(2, (20, 40)), (1, (100, 150))])
    def test_finds_a_face_where_it_is(self, orl, times, corner):
        (face,) = find_faces(on_a_wall((orl[0], times, *corner)))
        # Measured by hand, the eyes on this image are at (52, 27) and (51, 62).
        for eye, by_eye in ((face.left_eye, (52, 27)), (face.right_eye, (51, 62))):
            inside = (np.array(eye) - corner) / times
            assert np.abs(inside - by_eye).max() < 4
        assert (face.left_eye, face.right_eye) == face.landmarks[:2]
        nose, left_corner, right_corner = face.landmarks[2:]
        assert face.left_eye[0] < nose[0] < left_corner[0]
        assert left_corner[1] < nose[1] < right_corner[1]
        top, left, bottom, right = face.box
        assert top < face.left_eye[0] < (top + bottom) / 2
        assert left < face.left_eye[1] < face.right_eye[1] < right
        assert 70 * times < bottom - top < 110 * times
        assert 0.7 <= face.score <= 1.0

    def test_rows_are_what_opencv_detects(self, cv2, orl):
        theirs = cv2.FaceDetectorYN.create(
            str(YUNET.path()), "", (264, 264), LEAST_SCORE
        )
        wall = in_colour(on_a_wall((orl[0], 2, 20, 40)))
        red = (wall * np.array([1.0, 0.5, 0.3])).astype(np.uint8)
        _, (expected,) = theirs.detect(np.ascontiguousarray(red[:, :, ::-1]))
        (row,) = faces._search(red, 1.0, (0.0, 0.0))
        assert_allclose(row, expected, rtol=1e-4)

    def test_no_tight_crop_is_missed(self, orl):
        assert [len(find_faces(image)) for image in orl] == [1] * 400

    @pytest.mark.parametrize("times", [1, 4, 10])
    def test_crops_from_brow_to_mouth(self, orl, monkeypatch, times):
        # From 31 to 36 of these 40 are found without a border.
        tight = [enlarged(image[44:88, 24:68], times) for image in orl[::10]]
        n_found = sum(len(find_faces(image)) for image in tight)
        monkeypatch.setattr(faces, "_search_with_border", lambda *_: [])
        assert n_found >= 38 > sum(len(find_faces(image)) for image in tight)

    @pytest.mark.parametrize("degrees", [-30, -15, 15, 30])
    def test_heads_that_are_turned(self, orl, degrees):
        wall = on_a_wall((orl[0], 2, 20, 40))
        (upright,) = find_faces(wall)
        (face,) = find_faces(turned(wall, degrees))
        a = radians(degrees)
        centre = np.array(wall.shape) / 2.0
        turn = np.array([[cos(a), -sin(a)], [sin(a), cos(a)]])
        expected = (np.array(upright.landmarks) - centre) @ turn.T + centre
        # The detector's own points are up to 9 pixels away.
        assert_allclose(face.landmarks, expected, atol=6)
        for image in orl[::40]:
            assert len(find_faces(turned(on_a_wall((image, 2, 20, 40)), degrees))) == 1

    def test_the_largest_comes_first(self, orl):
        small, large = (orl[0], 1, 10, 5), (orl[10], 2, 20, 110)
        found = find_faces(on_a_wall(small, large, shape=(264, 304)))
        assert len(found) == 2
        assert found[0].left_eye[1] > 110 > found[1].right_eye[1]

    def test_orientation_noted_by_the_camera(self, orl, tmp_path):
        wall = on_a_wall((orl[0], 2, 20, 40), shape=(300, 264))
        lying = image_module.fromarray(wall).transpose(image_module.Transpose.ROTATE_90)
        exif = image_module.Exif()
        exif[0x0112] = 6
        lying.save(tmp_path / "noted.jpg", exif=exif, quality=95)
        lying.save(tmp_path / "lost.jpg", quality=95)
        (face,), (expected,) = find_faces(tmp_path / "noted.jpg"), find_faces(wall)
        assert_allclose(face.landmarks, expected.landmarks, atol=1.5)
        with image_module.open(tmp_path / "noted.jpg") as opened:
            assert find_faces(opened) == [face]
        for lost in find_faces(tmp_path / "lost.jpg"):
            assert np.abs(np.subtract(lost.landmarks, face.landmarks)).max() > 20

    def test_paths_images_and_arrays_are_the_same(self, orl, tmp_path):
        wall = on_a_wall((orl[0], 2, 20, 40))
        image = image_module.fromarray(wall)
        image.save(tmp_path / "a.png")
        same = [str(tmp_path / "a.png"), image, wall, in_colour(wall)]
        expected = find_faces(tmp_path / "a.png")
        assert [find_faces(one) for one in same] == [expected] * 4

    @pytest.mark.parametrize(
        "shape", [(1, 1), (2, 3), (1, 5000), (5000, 1), (3, 3000), (16, 16)]
    )
    @pytest.mark.parametrize("tiles", [False, True])
    def test_odd_shapes_have_no_face(self, orl, shape, tiles):
        pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        assert find_faces(pixels, tiles=tiles) == []

    def test_boxes_are_inside_of_the_photograph(self, orl):
        for image in orl[::20]:
            cut = enlarged(image, 2)[60:, 30:]
            for face in find_faces(cut):
                top, left, bottom, right = face.box
                assert 0 <= top < bottom <= cut.shape[0]
                assert 0 <= left < right <= cut.shape[1]

    def test_threads_agree(self, walls):
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(find_faces, walls))
        assert together == [find_faces(wall) for wall in walls]

    @pytest.mark.parametrize(
        ("bad", "reason"),
        [
            (np.zeros((9, 9)), "must be uint8"),
            (np.zeros((9, 9, 4), dtype=np.uint8), r"shape \(9, 9, 4\)"),
            (np.zeros((0, 9), dtype=np.uint8), r"shape \(0, 9\)"),
            (7, "not int"),
        ],
    )
    def test_what_is_no_photograph(self, orl, bad, reason):
        with pytest.raises(DatabaseError, match=f"the photograph: .*{reason}"):
            find_faces(bad)

    def test_without_opencv(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "cv2", None)
        with pytest.raises(MissingDependencyError, match="Photographs need OpenCV"):
            find_faces("absent.png")
        with pytest.raises(MissingDependencyError, match="Photographs need OpenCV"):
            next(read_faces(["absent.png"]))


class TestLargePhotographs:
    def test_they_are_searched_small_and_measured_large(self, orl):
        wall = on_a_wall((orl[0], 1, 20, 40), shape=(300, 400))
        (small,) = find_faces(wall)
        (large,) = find_faces(enlarged(wall, 10))
        assert_allclose(
            large.landmarks, 10 * np.array(small.landmarks), atol=20, rtol=0
        )
        assert 9 * small.side < large.side < 11 * small.side

    def test_close_ups_are_found(self, orl):
        # The detector alone misses faces that are larger than about 500 pixels.
        for image in orl[::50]:
            (face,) = find_faces(enlarged(image, 20))
            assert face.side > 1000

    def test_a_close_up_does_not_hide_a_face_behind_it(self, orl):
        both = on_a_wall((orl[0], 8, 60, 0), (orl[10], 1, 10, 900), shape=(1000, 1000))
        large, small = find_faces(both)
        assert large.side > 500 > 100 > small.side

    @pytest.mark.parametrize("tiles", [False, True])
    def test_no_search_has_more_than_1024_pixels(self, searched, tiles):
        find_faces(np.zeros((600, 12000), dtype=np.uint8), tiles=tiles)
        assert max(max(shape) for shape in searched) == 1024
        assert searched[:2] == [(51, 1024, 3), (16, 320, 3)]
        assert (len(searched) == 3) is not tiles

    def test_small_ones_are_enlarged_and_get_a_border(self, searched):
        find_faces(np.zeros((40, 30), dtype=np.uint8))
        assert searched == [(160, 120, 3), (240, 200, 3)]

    def test_tiles_find_small_faces_and_no_doubles(self, orl):
        # Some of them are where tiles overlap.
        places = [(100, 100), (1500, 2000), (2700, 3800), (60, 1000), (1490, 990)]
        small = [(orl[10 * k], 0.5, *place) for k, place in enumerate(places)]
        wall = on_a_wall(*small, (orl[100], 8, 1700, 200), shape=(3000, 4000))
        (plain,) = find_faces(wall)
        assert plain.box[1] < 1000
        found = find_faces(wall, tiles=True)
        assert found[0] == plain
        corners = sorted((face.box[0], face.box[1]) for face in found[1:])
        assert len(corners) == len(places)
        for corner, place in zip(corners, sorted(places), strict=True):
            assert np.abs(np.subtract(corner, place)).max() < 20

    def test_tiles_do_not_change_small_photographs(self, walls):
        assert find_faces(walls[0], tiles=True) == find_faces(walls[0])

    @given(
        size=st.integers(1, 20_000),
        step=st.floats(100, faces.LONGEST_SIDE),
    )
    def test_tiles_cover_the_whole_and_overlap(self, size, step):
        starts = faces._tile_starts(size, step)
        assert starts[0] == 0
        assert starts[-1] + faces.LONGEST_SIDE >= size
        assert starts[-1] <= max(0, size - faces.LONGEST_SIDE)
        assert np.diff(starts).max(initial=0) <= step + 1


class TestAlignFace:
    @pytest.mark.parametrize("times", [0.7, 1.0, 1.6])
    def test_is_what_opencv_cuts_out(self, cv2, orl, times):
        theirs = cv2.FaceRecognizerSF.create(str(SFACE.path()), "")
        for image in orl[::40]:
            rng = np.random.default_rng(0)
            wall = on_a_wall((image, times, 20, 30), shape=(380, 340))
            pixels = np.clip(
                in_colour(wall) + rng.integers(-20, 21, (*wall.shape, 3)), 0, 255
            ).astype(np.uint8)
            (face,) = detect_faces(pixels)
            expected = theirs.alignCrop(pixels, row_of(face)).astype(int)
            assert np.abs(align_face(pixels, face, 112) - expected).max() <= 1

    @settings(max_examples=50)
    @given(
        seed=st.integers(0, 2**32 - 1),
        scale=st.floats(0.1, 10),
        angle=st.floats(-3.1, 3.1),
    )
    def test_similarity_of_exact_points(self, seed, scale, angle):
        cv2 = pytest.importorskip("cv2")
        rng = np.random.default_rng(seed)
        turn = np.array([[cos(angle), -sin(angle)], [sin(angle), cos(angle)]])
        source = rng.normal(size=(5, 2))
        shift = rng.normal(size=2)
        target = scale * source @ turn.T + shift
        got = faces._similarity(source, target)
        assert_allclose(got, np.column_stack([scale * turn, shift]), atol=1e-9)
        theirs, _ = cv2.estimateAffinePartial2D(source, target)
        assert_allclose(got, theirs, atol=1e-4)

    @settings(max_examples=50)
    @given(seed=st.integers(0, 2**32 - 1))
    def test_similarity_has_the_least_squared_error(self, seed):
        rng = np.random.default_rng(seed)
        source, target = rng.normal(size=(2, 5, 2))
        # Umeyama's problem without a reflection, as a linear least-squares problem.
        rows = []
        for x, y in source:
            rows += [(x, -y, 1, 0), (y, x, 0, 1)]
        (p, q, u, v), *_ = np.linalg.lstsq(np.array(rows), target.ravel(), rcond=None)
        expected = [[p, -q, u], [q, p, v]]
        assert_allclose(faces._similarity(source, target), expected, atol=1e-9)

    def test_points_that_coincide_are_no_error(self, orl):
        points = ((30.0, 30.0),) * 5
        got = align_face(
            np.zeros((60, 60, 3), dtype=np.uint8),
            Face((0, 0, 60, 60), points, 0.9),
            112,
        )
        assert got.shape == (112, 112, 3)

    def test_large_faces_are_reduced_without_aliasing(self, orl):
        # Stripes of one pixel become nearly even grey. Else some stay black or white.
        stripes = np.tile(np.array([0, 255], dtype=np.uint8), (1000, 500))
        points = 7.3 * faces._TEMPLATE[:, ::-1] + 40.0
        face = Face((100, 100, 900, 900), tuple(map(tuple, points.tolist())), 0.9)
        inside = align_face(in_colour(stripes), face, 112)[5:-5, 5:-5]
        assert np.ptp(inside.astype(int)) < 50

    def test_points_are_in_place_after_reduction(self, orl):
        pixels = np.zeros((1200, 1200, 3), dtype=np.uint8)
        points = 8.0 * faces._TEMPLATE[:, ::-1] + 77.3
        for row, column in points.round().astype(int):
            pixels[row - 20 : row + 21, column - 20 : column + 21] = 255
        face = Face((100, 100, 900, 900), tuple(map(tuple, points.tolist())), 0.9)
        small = align_face(pixels, face, 112)[:, :, 0].astype(float)
        for column, row in faces._TEMPLATE:
            top, left = round(row) - 6, round(column) - 6
            part = small[top : top + 13, left : left + 13]
            for place, axis in ((row - top, 1), (column - left, 0)):
                centre = np.average(np.arange(13), weights=part.sum(axis=axis))
                assert abs(centre - place) < 0.15

    def test_other_sizes_show_the_same(self, orl):
        wall = in_colour(on_a_wall((orl[0], 2, 20, 40)))
        (face,) = detect_faces(wall)
        small, large = align_face(wall, face, 56), align_face(wall, face, 112)
        halved = image_module.fromarray(large).reduce(2)
        assert np.abs(small - np.asarray(halved, dtype=float)).mean() < 6

    def test_describe_face_is_both_steps(self, cv2, orl):
        theirs = cv2.FaceRecognizerSF.create(str(SFACE.path()), "")
        wall = in_colour(on_a_wall((orl[0], 2, 20, 40)))
        (face,) = detect_faces(wall)
        ours = describe_face(wall, face, FaceNetwork())
        other = theirs.feature(theirs.alignCrop(wall, row_of(face)))[0]
        alike = ours @ other / np.linalg.norm(ours) / np.linalg.norm(other)
        assert alike > 0.999


class TestMeasuredAgain:
    def test_turned_heads_stay_themselves(self, orl, monkeypatch):
        alike = []
        for again in (faces._measured_again, lambda points, pixels: points):
            monkeypatch.setattr(faces, "_measured_again", again)
            for image in orl[::80]:
                wall = on_a_wall((image, 2, 20, 40))
                shots = [wall, turned(wall, 35)]
                one, other = (found.faces[0].vector for found in read_faces(shots))
                norms = np.linalg.norm(one) * np.linalg.norm(other)
                alike.append(one @ other / norms)
        with_it, without = np.reshape(alike, (2, -1))
        assert with_it.min() > 0.8
        assert with_it.mean() > without.mean() + 0.1

    def test_nothing_found_changes_nothing(self, orl):
        points = 40.0 + faces._TEMPLATE
        flat = np.full((200, 200, 3), 128, dtype=np.uint8)
        assert_array_equal(faces._measured_again(points, flat), points)

    def test_points_that_coincide_are_no_error(self, walls):
        points = np.full((5, 2), 100.0)
        again = faces._measured_again(points, in_colour(walls[0]))
        assert_array_equal(again, points)

    def test_another_face_is_not_taken(self, orl, monkeypatch):
        wall = in_colour(on_a_wall((orl[0], 2, 20, 40)))
        (face,) = detect_faces(wall)
        points = faces._points(face)
        far = np.zeros(15)
        far[4:14] = (faces._TEMPLATE * 0.7 + 60.0).ravel()
        monkeypatch.setattr(faces, "_search", lambda *_: [far])
        assert_array_equal(faces._measured_again(points, wall), points)

    def test_the_nearest_of_several_is_taken(self, orl, monkeypatch):
        wall = in_colour(on_a_wall((orl[0], 2, 20, 40)))
        (face,) = detect_faces(wall)
        points = faces._points(face)
        search = faces._search
        far = np.zeros(15)
        far[4:14] = (faces._TEMPLATE * 0.7 + 60.0).ravel()
        expected = faces._measured_again(points, wall)
        monkeypatch.setattr(faces, "_search", lambda *args: [far, *search(*args)])
        assert_array_equal(faces._measured_again(points, wall), expected)

    def test_it_ends(self, orl, monkeypatch):
        wall = in_colour(on_a_wall((orl[0], 2, 20, 40)))
        rounds = []
        row = np.zeros(15)
        # Each time, the face seems to be turned further.
        row[4:14] = ((faces._TEMPLATE - 56.0) @ [[0, 0.7], [-0.7, 0]] + 64.0).ravel()
        monkeypatch.setattr(faces, "_search", lambda *_: (rounds.append(1), [row])[1])
        faces._measured_again(faces._TEMPLATE + 40.0, wall)
        assert len(rounds) == 3


class TestQuality:
    def test_falls_with_blur(self, cv2, orl):
        wall = on_a_wall((orl[0], 2, 20, 40))
        found = [find_faces(wall)[0]]
        for sigma in (2.0, 3.0, 4.0):
            found += find_faces(cv2.GaussianBlur(wall, (0, 0), sigma))
        qualities = [face.quality for face in found]
        assert qualities[0] == 1.0
        assert qualities == sorted(qualities, reverse=True)
        assert qualities[-1] < 0.5
        weak = [face.weakness for face in found]
        assert weak == ["", "blurred", "blurred", "blurred"]

    def test_falls_with_size(self):
        small = [a_face(side) for side in (60, 40, 24, 12, 8, 4)]
        assert [face.quality for face in small] == [1.0, 1.0, 0.5, 0.125, 0.0, 0.0]
        assert [face.weakness for face in small] == ["", "", *["small"] * 4]

    def test_falls_with_the_score(self):
        assert a_face(score=0.725).quality == pytest.approx(0.5)
        assert a_face(score=0.725).weakness == "unclear"

    def test_is_the_worst_of_all(self):
        face = a_face(24, sharpness=0.095, score=0.7)
        assert face.quality == pytest.approx(0.4)
        assert face.weakness == "unclear"

    def test_sharpness_does_not_depend_on_contrast(self, orl):
        wall = on_a_wall((orl[0], 2, 20, 40))
        pale = (wall // 2 + 60).astype(np.uint8)
        (face,), (other,) = find_faces(wall), find_faces(pale)
        assert other.sharpness == pytest.approx(face.sharpness, rel=0.05)

    def test_a_flat_face_has_no_sharpness(self, orl):
        assert faces._sharpness(np.full((112, 112, 3), 9, dtype=np.uint8)) == 0.0


class TestMainFace:
    @staticmethod
    def seen(*sides, **quality):
        described = tuple(
            DescribedFace(a_face(side, 200 * k, **quality), np.array([float(side)]))
            for k, side in enumerate(sides)
        )
        return PhotographFaces("party.jpg", described)

    def test_the_only_one(self):
        assert self.seen(100).main_face("error").vector == [100.0]

    def test_no_face(self):
        with pytest.raises(NoFaceError, match=r"party\.jpg: no face was found"):
            self.seen().main_face("largest")

    def test_faces_of_similar_size(self):
        seen = self.seen(100, 76, 75, 74)
        message = r"party\.jpg: 3 faces of similar size.*\(0, 200, 76, 276\)"
        with pytest.raises(SeveralFacesError, match=message) as caught:
            seen.main_face("error")
        assert "--several largest" in str(caught.value)
        assert seen.main_face("largest").vector == [100.0]

    def test_faces_in_the_background_do_not_count(self):
        assert self.seen(100, 74, 30).main_face("error").vector == [100.0]

    @pytest.mark.parametrize(
        ("quality", "side", "words"),
        [
            ({}, 24, r"0\.50, less than 0\.6: it is small\. Take it from a shorter"),
            ({"sharpness": 0.0675}, 90, r"0\.25.*blurred\. Take a sharper"),
            ({"score": 0.7}, 90, r"0\.40.*unclear\. Take one from the front"),
        ],
    )
    def test_poor_faces_are_refused(self, quality, side, words):
        seen = self.seen(side, **quality)
        assert seen.main_face("error").face.side == side
        with pytest.raises(PoorFaceError, match=rf"party\.jpg: .*{words}"):
            seen.main_face("error", 0.6)

    def test_exactly_the_smallest_quality_is_enough(self):
        assert self.seen(24).main_face("error", 0.5).face.side == 24

    def test_problems_are_raised(self):
        problem = DatabaseError("x.jpg: damaged")
        with pytest.raises(DatabaseError, match="damaged") as caught:
            PhotographFaces("x.jpg", problem=problem).main_face("largest")
        assert caught.value is problem

    @pytest.mark.parametrize("error", [NoFaceError, SeveralFacesError, PoorFaceError])
    def test_errors_are_errors_of_databases(self, error):
        assert issubclass(error, DatabaseError)


class TestReadFaces:
    @pytest.fixture(autouse=True)
    def _threads_for_few(self, monkeypatch):
        # Else the few photographs here would be read by one thread.
        monkeypatch.setattr(faces, "_FEW_PHOTOGRAPHS", 1)

    @pytest.fixture
    def mixed(self, walls, tmp_path):
        """Good photographs with bad ones between them."""
        image_module.fromarray(walls[0]).save(tmp_path / "whole.png")
        content = (tmp_path / "whole.png").read_bytes()
        (tmp_path / "half.png").write_bytes(content[: len(content) // 2])
        (tmp_path / "empty.png").touch()
        names = ("half.png", "whole.png", "empty.png", "absent.png")
        half, whole, empty, absent = (tmp_path / name for name in names)
        wall = np.full((90, 90), 128, dtype=np.uint8)
        return [half, walls[1], empty, wall, whole, 7, walls[2], absent, walls[3]]

    @pytest.mark.parametrize("n_jobs", [1, 2, 5])
    def test_bad_photographs_stop_nothing(self, mixed, n_jobs):
        found = list(read_faces(mixed, n_jobs=n_jobs))
        assert [len(one.faces) for one in found] == [0, 1, 0, 0, 1, 0, 1, 0, 1]
        bad = [place for place, one in enumerate(found) if one.problem is not None]
        assert bad == [0, 2, 5, 7]
        for place, reason in ((0, "truncated"), (2, "empty"), (7, "No such file")):
            assert found[place].name == str(mixed[place])
            assert reason in str(found[place].problem)
        assert found[1].name == "photograph 1"

    def test_threads_and_batches_give_the_same_bits(self, walls):
        expected = list(read_faces(walls))
        single = [one for wall in walls for one in read_faces([wall])]
        two = list(read_faces(iter(walls), n_jobs=2))
        turned_round = list(read_faces(walls[::-1], n_jobs=2))[::-1]
        for others in (single, two, turned_round):
            for one, other in zip(expected, others, strict=True):
                assert one.faces[0].face == other.faces[0].face
                assert_array_equal(one.faces[0].vector, other.faces[0].vector)

    def test_the_threads_of_opencv_do_not_matter(self, cv2, walls):
        before = cv2.getNumThreads()
        try:
            for n_threads in (1, 3):
                cv2.setNumThreads(n_threads)
                (one,), (two,) = (read_faces([wall]) for wall in walls[:2])
                rows = np.array([one.faces[0].vector, two.faces[0].vector])
                if n_threads == 1:
                    expected = rows
                assert_array_equal(rows, expected)
        finally:
            cv2.setNumThreads(before)

    def test_vectors_tell_people_apart(self, orl):
        shots = [on_a_wall((image, 2, 20, 40)) for image in orl[:60:5]]
        rows = np.array([one.faces[0].vector for one in read_faces(shots, n_jobs=2)])
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        alike = rows @ rows.T
        np.fill_diagonal(alike, -1.0)
        assert (alike.argmax(axis=1) == np.arange(12) ^ 1).all()

    def test_colours_are_not_lost(self, walls):
        wall = in_colour(walls[0])
        red = (wall * np.array([1.0, 0.6, 0.6])).astype(np.uint8)
        blue = np.ascontiguousarray(red[:, :, ::-1])
        vectors = [one.faces[0].vector for one in read_faces([wall, red, blue])]
        assert np.abs(vectors[0] - vectors[1]).max() > 0.01
        assert np.abs(vectors[1] - vectors[2]).max() > 0.01

    def test_all_faces_or_the_largest(self, orl):
        small, large = (orl[0], 1, 10, 5), (orl[10], 2, 20, 110)
        both = on_a_wall(small, large, shape=(264, 304))
        (everyone,) = read_faces([both])
        (main,) = read_faces([both], all_faces=False)
        assert [one.vector.size for one in everyone.faces] == [128, 128]
        assert [one.vector.size for one in main.faces] == [128, 0]
        assert_array_equal(main.faces[0].vector, everyone.faces[0].vector)

    @pytest.mark.parametrize("n_jobs", [1, 2])
    def test_progress(self, mixed, n_jobs):
        seen = []
        found = read_faces(
            mixed, n_jobs=n_jobs, progress=lambda *count: seen.append(count)
        )
        next(found)
        assert seen == [(1, 9)]
        list(found)
        assert seen == [(k, 9) for k in range(1, 10)]

    def test_it_can_be_closed_early(self, cv2, walls, monkeypatch):
        started, gate = [], Event()
        read = faces.read_photograph

        def watched(one, name):
            started.append(name)
            if name not in ("photograph 0", "photograph 1"):
                gate.wait(10)
            return read(one, name)

        monkeypatch.setattr(faces, "read_photograph", watched)
        before = cv2.getNumThreads()
        cv2.setNumThreads(2)
        try:
            found = read_faces(walls * 10, n_jobs=2)
            assert len(list(islice(found, 2))) == 2
            Timer(0.3, gate.set).start()
            found.close()
            assert cv2.getNumThreads() == 2
        finally:
            cv2.setNumThreads(before)
        # Two were done, and two had begun.
        assert sorted(started) == [f"photograph {k}" for k in range(4)]

    def test_networks_are_checked_before_any_photograph(self, orl, tmp_path):
        network = FaceNetwork(str(tmp_path / "absent.onnx"))
        with pytest.raises(NetworkError, match=r"absent\.onnx"):
            next(read_faces(["absent.jpg"], network=network))

    @pytest.mark.parametrize("n_jobs", [1, 2])
    def test_a_network_that_fails_is_an_error(self, cv2, walls, tmp_path, n_jobs):
        (tmp_path / "text.onnx").write_text("no network")
        network = FaceNetwork(str(tmp_path / "text.onnx"))
        before = cv2.getNumThreads()
        with pytest.raises(NetworkError, match=r"text\.onnx"):
            list(read_faces(walls, network=network, n_jobs=n_jobs))
        assert cv2.getNumThreads() == before

    @pytest.mark.parametrize(("n_photographs", "n_threads"), [(7, 1), (8, 2), (30, 3)])
    def test_few_photographs_have_few_threads(
        self, orl, monkeypatch, n_photographs, n_threads
    ):
        monkeypatch.setattr(faces, "_FEW_PHOTOGRAPHS", 8)
        threads, together = set(), Barrier(n_threads)

        def work(item):
            # Passed only if so many threads work at the same time.
            if item < n_threads:
                together.wait(30.0)
            threads.add(get_ident())
            return item

        items = list(range(n_photographs))
        assert list(faces._in_order(work, items, 3)) == items
        assert len(threads) == n_threads

    def test_large_photographs_are_read_one_at_a_time(self, walls, monkeypatch):
        monkeypatch.setattr(faces, "_LARGE", 1000)
        two_at_once = Barrier(2)
        read = faces.read_photograph

        def watched(one, name):
            # Nobody else may come while this one waits.
            with pytest.raises(BrokenBarrierError):
                two_at_once.wait(0.3)
            return read(one, name)

        monkeypatch.setattr(faces, "read_photograph", watched)
        assert all(one.faces for one in read_faces(walls, n_jobs=3))

    def test_remarks_are_kept(self, walls, tmp_path):
        deep = image_module.fromarray(walls[0].astype(np.uint16) * 257)
        deep.save(tmp_path / "deep.png")
        (found,) = read_faces([tmp_path / "deep.png"])
        assert len(found.faces) == 1
        assert found.remarks == ("it has 16 bits per colour; 8 are used",)


@pytest.fixture(scope="module")
def real(orl):
    """Real photographs, their people and faces."""
    paths, people = real_photographs()
    return paths, people, list(read_faces(paths, n_jobs=2))


@pytest.mark.realdata
class TestPhotographs:
    def test_a_face_in_all(self, real):
        _, _, found = real
        assert [place for place, one in enumerate(found) if not one.faces] == []
        assert all(one.faces[0].face.quality > 0.5 for one in found)

    def test_nearest_neighbours_are_the_same_person(self, real):
        _, people, found = real
        rows = np.array([one.faces[0].vector for one in found])
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        alike = rows @ rows.T
        np.fill_diagonal(alike, -1.0)
        assert (people[alike.argmax(axis=1)] == people).all()

    def test_heads_that_are_turned(self, real):
        paths, people, found = real
        rows = np.array([one.faces[0].vector for one in found])
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        shots = [turned(read_photograph(path, "x").pixels, 40) for path in paths[::5]]
        right = 0
        for place, seen in enumerate(read_faces(shots, n_jobs=2)):
            if seen.faces:
                alike = rows @ seen.faces[0].vector
                # The same photograph does not count.
                alike[5 * place] = -np.inf
                right += people[alike.argmax()] == people[5 * place]
        # By the detector's own points, it is 16 of 20.
        assert right >= 19

    @pytest.mark.parametrize("margin", [0.0, -0.05])
    def test_tight_crops(self, real, margin):
        paths, _, found = real
        n_found = 0
        for path, one in zip(paths, found, strict=True):
            top, left, bottom, right = one.faces[0].face.box
            more = round(margin * (right - left))
            pixels = read_photograph(path, str(path)).pixels
            tight = pixels[
                max(0, top - more) : bottom + more, max(0, left - more) : right + more
            ]
            n_found += len(detect_faces(np.ascontiguousarray(tight))) > 0
        assert n_found >= 98

    def test_faces_stay_themselves_when_reduced(self, real):
        paths, _, found = real
        for path, one in list(zip(paths, found, strict=True))[::10]:
            pixels = read_photograph(path, str(path)).pixels
            large = np.asarray(image_module.fromarray(pixels).resize((2000, 2000)))
            again = detect_faces(large)[0]
            vector = describe_face(large, again, FaceNetwork())
            first = one.faces[0].vector
            alike = vector @ first / np.linalg.norm(vector) / np.linalg.norm(first)
            assert alike > 0.9
