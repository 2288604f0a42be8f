import pickle
import signal
import subprocess
import sys
import textwrap
import time
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from dualqml import DualQML
from dualqml.exceptions import InfeasibleError
from tests.problems import make_data

X, y = make_data([3, 2, 4, 1, 3], 25)


def test_attributes_have_the_promised_shapes():
    model = DualQML().fit(X, y)
    np.testing.assert_array_equal(model.classes_, np.arange(5))
    assert model.components_.shape == (model.ranks_.sum(), 25)
    assert (model.ranks_ <= np.bincount(y)).all()
    assert model.dual_coef_.shape == (13,)
    assert (model.dual_coef_ >= 0).all()
    assert model.duality_gap_.shape == model.violation_.shape == (5,)
    assert model.duality_gap_.max() <= 1e-6
    assert set(model.status_) == {"optimal"}
    assert isinstance(model.n_iter_, int)
    assert model.n_features_in_ == 25
    assert model.lam_ == 1.0


def test_features_are_the_quadratic_forms_of_the_matrices():
    model = DualQML(3.0).fit(X, y)
    features = model.transform(X)
    for c in model.classes_:
        P = model.quadratic_matrix(c)
        np.testing.assert_allclose(features[:, c], ((X @ P) * X).sum(1), atol=1e-12)
        assert np.linalg.eigvalsh(P).min() > -1e-12 * np.linalg.norm(P)
        own = features[y == c, c]
        assert own.min() >= 1.0 - 1e-6


def test_signed_roots_are_the_quadratic_features_with_a_sign():
    plain = DualQML(3.0).fit(X, y)
    signed = DualQML(3.0, features="signed-root").fit(X, y)
    np.testing.assert_array_equal(signed.components_, plain.components_)
    roots = signed.transform(X)
    np.testing.assert_allclose(roots**2, plain.transform(X), rtol=1e-12)
    for c in signed.classes_:
        towards_mean = X @ signed.quadratic_matrix(c) @ X[y == c].mean(axis=0)
        np.testing.assert_array_equal(roots[:, c] < 0, towards_mean < 0)
    assert (roots < 0).any()
    np.testing.assert_array_equal(signed.transform(-X), -roots)
    assert signed.mean_responses_.shape == (signed.ranks_.sum(),)
    assert plain.mean_responses_ is None


def test_fitting_again_without_signs_forgets_them():
    model = DualQML(features="signed-root").fit(X, y).set_params(features="quadratic")
    assert (model.fit(X, y).transform(X) >= 0).all()


def test_unknown_features_are_an_error():
    with pytest.raises(ValueError, match="features"):
        DualQML(features="cubic").fit(X, y)


@pytest.mark.parametrize("solver", ["lbfgs", "sdp"])
def test_the_other_solvers_give_the_same_features(solver):
    if solver == "sdp":
        pytest.importorskip("cvxpy")
    ours = DualQML(2.0, tol=1e-9).fit(X, y)
    with warnings.catch_warnings():
        # Their own tolerance may just miss ours.
        warnings.simplefilter("ignore", ConvergenceWarning)
        other = DualQML(2.0, solver=solver, tol=1e-8).fit(X, y)
    np.testing.assert_allclose(ours.transform(X), other.transform(X), atol=2e-3)


def test_n_jobs_does_not_change_a_bit():
    alone = DualQML().fit(X, y)
    for n_jobs in (2, -1):
        together = DualQML(n_jobs=n_jobs).fit(X, y)
        np.testing.assert_array_equal(alone.components_, together.components_)


def test_lam_scale_auto_does_not_depend_on_the_scale_of_the_data():
    small = DualQML(10.0, lam_scale="auto").fit(X, y)
    large = DualQML(10.0, lam_scale="auto").fit(255.0 * X, y)
    np.testing.assert_allclose(
        small.transform(X), large.transform(255.0 * X), rtol=1e-3, atol=1e-4
    )
    # On rows of unit norm it is no change at all.
    assert small.lam_ == pytest.approx(10.0)
    assert large.lam_ == pytest.approx(10.0 / 255.0**4)


def test_single_precision_in_single_precision_out():
    single = DualQML().fit(X.astype(np.float32), y)
    features = single.transform(X.astype(np.float32))
    assert features.dtype == np.float32
    # Training is in double precision all the same.
    assert single.components_.dtype == np.float64
    assert single.duality_gap_.max() <= 1e-6
    np.testing.assert_allclose(features, DualQML().fit(X, y).transform(X), atol=1e-4)


def test_string_labels():
    names = np.array(["anna", "bert", "cleo", "dora", "emil"])
    model = DualQML().fit(X, names[y])
    np.testing.assert_array_equal(model.classes_, names)
    np.testing.assert_array_equal(model.transform(X), DualQML().fit(X, y).transform(X))
    assert model.quadratic_matrix("cleo").shape == (25, 25)
    assert list(model.get_feature_names_out()) == [f"dualqml{i}" for i in range(5)]


def test_unknown_class_is_an_error_that_names_it():
    with pytest.raises(ValueError, match="'zoe' is not a class"):
        DualQML().fit(X, y).quadratic_matrix("zoe")


def test_read_only_and_memory_mapped_input(tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    model = DualQML().fit(mapped, y)
    np.testing.assert_array_equal(model.components_, DualQML().fit(X, y).components_)
    frozen = X.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(model.transform(mapped), model.transform(frozen))


@pytest.mark.parametrize(
    ("sizes", "n_features"),
    [
        ([1, 1, 1], 10),  # one sample in every class
        ([1, 1], 1),  # one feature
        ([40, 30], 3),  # n > p, and classes larger than the space
        ([2, 2], 500),  # n < p
        ([1, 3, 3, 3, 80], 50),
    ],
)
@pytest.mark.parametrize("lam", [1e-6, 1.0, 1e4])
def test_all_shapes_are_solved(sizes, n_features, lam):
    data, labels = make_data(sizes, n_features, centre=n_features > 1)
    model = DualQML(lam).fit(data, labels)
    assert set(model.status_) == {"optimal"}


def test_duplicates_and_samples_in_the_span_of_other_classes():
    data = X.copy()
    data[1] = data[0]  # twice in one class
    data[5] = data[3]  # the same image in two classes
    data[9] = data[0] + data[3] + data[6]
    for lam in (0.01, 1.0, 1e4):
        model = DualQML(lam).fit(data, y)
        assert set(model.status_) == {"optimal"}


@pytest.mark.parametrize("power", range(-6, 9, 2))
def test_lambda_over_fourteen_decades(power):
    model = DualQML(10.0**power).fit(X, y)
    assert model.duality_gap_.max() <= 1e-6
    assert model.violation_.max() <= 1e-6


def test_samples_of_very_different_norms():
    scales = np.exp(2.0 * np.random.default_rng(0).normal(size=(13, 1)))
    for lam in (1e-6, 1e-2, 1.0, 1e4):
        assert set(DualQML(lam).fit(X * scales, y).status_) == {"optimal"}


def test_zero_vectors_get_no_constraint_and_a_warning_that_names_the_rows():
    data = X.copy()
    data[[4, 7]] = 0.0
    with pytest.warns(UserWarning, match="rows 4, 7 of X"):
        model = DualQML().fit(data, y)
    np.testing.assert_array_equal(model.dual_coef_[[4, 7]], 0.0)
    assert set(model.status_) == {"optimal"}


def test_zero_vectors_can_be_an_error():
    data = X.copy()
    data[[4, 7]] = 0.0
    with pytest.raises(InfeasibleError, match="rows 4, 7 of X"):
        DualQML(zero_samples="error").fit(data, y)
    with pytest.raises(ValueError, match="no solution"):  # also a ValueError
        DualQML(zero_samples="error").fit(data, y)


def test_what_rounding_leaves_of_zero_is_zero():
    data = X.copy()
    data[4] *= 1e-14
    with pytest.raises(InfeasibleError, match=r"rows 4 of X"):
        DualQML(zero_samples="error").fit(data, y)


def test_small_samples_are_samples():
    # Far too small to be seen in the scatter of all samples.
    data = X.copy()
    data[4] *= 1e-9
    model = DualQML(zero_samples="error").fit(data, y)
    assert set(model.status_) == {"optimal"}
    own = np.flatnonzero(y == y[4])
    assert (model.transform(data)[own, y[4]] >= 1.0 - 1e-6).all()


def test_many_zero_vectors_are_counted():
    data = np.vstack([X, np.zeros((12, 25))])
    with pytest.warns(UserWarning, match="and 2 more"):
        DualQML().fit(data, np.append(y, np.zeros(12, dtype=int)))


def test_ignored_zero_vectors_have_no_influence():
    data = np.vstack([X, np.zeros((2, 25)), 1e-14 * X[:1]])
    labels = np.append(y, [0, 1, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = DualQML(zero_samples="ignore").fit(data, labels)
    np.testing.assert_array_equal(model.dual_coef_[13:], 0.0)
    np.testing.assert_array_equal(model.components_, DualQML().fit(X, y).components_)


def test_a_class_of_zero_vectors_only_is_an_error():
    data = np.where((y == 1)[:, None], 0.0, X)
    with pytest.raises(InfeasibleError, match="All samples of class"):
        DualQML(zero_samples="ignore").fit(data, y)
    with pytest.raises(InfeasibleError, match="All samples are zero"):
        DualQML(zero_samples="ignore").fit(0.0 * X, y)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_errors(bad):
    data = X.copy()
    data[0, 0] = bad
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        DualQML().fit(data, y)
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        DualQML().fit(X, y).transform(data)


def test_one_class_only_is_an_error():
    with pytest.raises(ValueError, match="at least 2 classes; got 1 class"):
        DualQML().fit(X, np.zeros(13))


def test_sparse_input_is_an_error():
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        DualQML().fit(sparse.csr_matrix(X), y)


@pytest.mark.parametrize("lam", [0.0, -1.0, "big"])
def test_invalid_lambda_is_an_error(lam):
    with pytest.raises((ValueError, TypeError), match="lam"):
        DualQML(lam).fit(X, y)


def test_unfitted_transform_is_an_error():
    with pytest.raises(NotFittedError):
        DualQML().transform(X)


def test_wrong_number_of_features_is_an_error():
    with pytest.raises(ValueError, match="24 features"):
        DualQML().fit(X, y).transform(X[:, :24])


def test_non_convergence_warns_with_the_gap_reached():
    with pytest.warns(ConvergenceWarning, match=r"relative duality gap is \d"):
        model = DualQML(1e3, solver="lbfgs", max_iter=1).fit(X, y)
    assert "inaccurate" in model.status_
    # The attributes say the same.
    bad = model.status_ == "inaccurate"
    worst = np.maximum(model.duality_gap_, model.violation_)
    np.testing.assert_array_equal(bad, worst > 1e-6)


def test_an_unreachable_tolerance_warns_that_rounding_is_the_reason():
    with pytest.warns(ConvergenceWarning, match="only because rounding") as caught:
        DualQML(tol=1e-13).fit(X, y)
    assert "tol=1e-13" in str(caught[0].message)


def test_clone_and_pickle_by_the_user_work():
    model = DualQML(2.0, lam_scale="auto").fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    assert clone(model).get_params() == model.get_params()


def test_in_a_pipeline_with_names_out():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=[f"pixel{i}" for i in range(25)])
    pipeline = make_pipeline(StandardScaler(with_std=False), Normalizer(), DualQML())
    out = pipeline.set_output(transform="pandas").fit(frame, y).transform(frame)
    assert list(out.columns) == [f"dualqml{i}" for i in range(5)]


def test_interrupt_stops_a_long_fit_promptly():
    # Hundreds of easy classes: many seconds of work for the lbfgs solver.
    script = textwrap.dedent(
        """
        import sys, time
        import numpy as np
        from dualqml import DualQML
        X = np.random.default_rng(0).normal(size=(600, 400))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        print("fitting", flush=True)
        try:
            DualQML(solver="lbfgs").fit(X, np.repeat(np.arange(300), 2))
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            sys.exit(7)
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "fitting\n"
        time.sleep(1.0)
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 7
        assert time.monotonic() - start < 20
        assert process.stdout.read() == "interrupted\n"


def test_model_of_the_papers_size_is_small():
    # AR with m=2: 120 people, 1024 pixels; full matrices would take 1 GB.
    data, labels = make_data([2] * 120, 1024)
    model = DualQML().fit(data, labels)
    assert len(pickle.dumps(model)) < 2.5e6
