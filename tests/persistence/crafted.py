"""Model files made by hand to do harm, each with a checksum that fits."""

import copy

import numpy as np

from dualqml.extractors import Background, DualQMLW, NearestSample
from dualqml.extractors.methods import make_method
from dualqml.images.descriptors import LocalDescriptors
from dualqml.persistence.model_files import save
from dualqml.recognition import Recognizer
from tests.people import make_people, make_vectors
from tests.persistence.sealed import Forged, join, split

NAN = {"float": "nan"}
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m"
BIDI = "\u202eann\u2066"
LONG = "x" * 1_000_000
DEEP = 0
for _ in range(90):
    DEEP = [DEEP]

#: In the place of any field.
WRONG = {
    "none": None,
    "true": True,
    "minus": -1,
    "large": 2**63,
    "nan": NAN,
    "text": "x",
    "escapes": ESCAPES,
    "list": [],
    "dict": {"dict": {"self": 1}},
    "array": {"array": {"tensor": "rows"}},
    "object": {
        "object": {"class": "NearestSample", "parameters": {}, "attributes": {}}
    },
}


def bases(folder):
    """Contents of valid files: recognisers and models."""
    rng = np.random.default_rng(0)
    path = folder / "base"
    contents = {}

    def keep(name, model):
        (model.save if isinstance(model, Recognizer) else save_to(model))(path)
        contents[name] = path.read_bytes()

    def save_to(model):
        return lambda path: save(model, path)

    centres = rng.normal(size=(5, 12))
    rows = centres[:, None] + 0.3 * rng.normal(size=(5, 3, 12))
    names = [f"person {n}" for n in range(5) for _ in range(3)]
    recognizer = Recognizer()
    recognizer.enroll_many(rows.reshape(15, 12), names)
    recognizer.calibrate(fpir=0.4)
    keep("vectors", recognizer)
    for method in ("LDA", "K-LDA", "MLE", "GTDA", "DualQML", "DualQML-W"):
        parameters = {"cv": 2, "lams": [1.0, 10.0]} if method == "DualQML" else {}
        recognizer = Recognizer(method, size=(8, 8), threshold=0.0, **parameters)
        people = make_people(n_people=4, n_images=3, size=8)
        files = [f"é{n}.png" for n in range(12)]
        recognizer.enroll_many(people.images, people.labels.tolist(), names=files)
        keep(method, recognizer)
    keep("empty", Recognizer(threshold=1.0))
    recognizer = Recognizer(threshold=1.0)
    recognizer.enroll("Ann", rows[0])
    keep("one", recognizer)
    others = Background.from_samples(*make_vectors(12, 3, size=12, noise=0.3))
    recognizer = Recognizer(threshold=1.0, background=others)
    recognizer.enroll("Ann", rows[0])
    keep("one and others", recognizer)
    X, y = rng.random((12, 16)), np.repeat(["Anna", "Bo", "Zoe"], 4)
    keep("nearest", NearestSample().fit(X, y.astype(object)))
    keep("search", make_method("LDA", tune=True).fit(X, y))
    keep("mle", make_method("MLE").fit(X, y))
    keep("DualQMLW", DualQMLW().fit(X, y))
    keep("local", make_method("LDA", preprocessing="local").fit(np.tile(X, 4), y))
    keep("descriptors", LocalDescriptors().fit(np.tile(X, 4)))
    keep("background", Background.from_samples(X, y))
    keep("background of many", others)
    images = np.tile(X, 4).reshape(-1, 8, 8)
    keep("background of images", Background.from_samples(images, y))
    return contents


def crafted(contents):
    """The files by name, each as a function that makes its content."""
    files = {}

    def forge(base, name, change):
        def make():
            forged = Forged(contents[base])
            change(forged)
            return forged.seal()

        files[f"{base}: {name}"] = make

    def field(base, name, key, value):
        forge(base, name, lambda f: f.state.update({key: copy.deepcopy(value)}))

    # Every field of the state, the calibration and the matcher.
    for base in ("vectors", "LDA"):
        for key in Forged(contents[base]).state:
            for kind, value in WRONG.items():
                field(base, f"{key} is {kind}", key, value)
    for part in ("calibration", "matcher"):
        for key in Forged(contents["vectors"]).state[part]["dict"]:
            for kind, value in WRONG.items():

                def replace(f, part=part, key=key, value=value):
                    f.state[part]["dict"][key] = copy.deepcopy(value)

                def drop(f, part=part, key=key):
                    del f.state[part]["dict"][key]

                forge("vectors", f"{part}.{key} is {kind}", replace)
            forge("vectors", f"{part}.{key} is missing", drop)

    # Parameters.
    for name, value in {
        "lam": {"array": {"tensor": "rows"}},
        "self": 1,
        "method": "LDA",
        "size": {"tuple": [8, 8]},
        "threshold": 1.0,
        "embedding": None,
        "image_shape": {"tuple": [3, 4]},
        "name": "LDA",
        "parameters": {"dict": {}},
        "n_jobs": 10**6,
        "rho": NAN,
        "tol": -1.0,
        "width": "wide",
        "kernel": ESCAPES,
        "rule": LONG,
        "descriptor": "local",
        "kappa": [0.0] * 100_000,
        "lam ": 1,
        ESCAPES: 1,
        "\ud800": 1,
        "": 1,
    }.items():

        def add(f, name=name, value=value):
            f.state["parameters"]["dict"][name] = value

        def add_inside(f, name=name, value=value):
            f.state["matcher"]["dict"]["parameters"]["dict"][name] = value

        forge("vectors", f"parameter {name[:20]!r}", add)
        forge("vectors", f"matcher's parameter {name[:20]!r}", add_inside)
    for name, value in {
        "tune": True,
        "preprocessing": "local",
        "shrinkage": {"tuple": [1.0]},
        "name": "K-LDA",
        "image_shape": {"tuple": [4, 16]},
    }.items():

        def add(f, name=name, value=value):
            f.state["parameters"]["dict"][name] = value

        forge("LDA", f"parameter {name}", add)
    for name, value in {
        "cv": 10**9,
        "lams": [1.0] * 2_000,
        "n_jobs": 10**6,
        "max_iter": 0,
    }.items():

        def add(f, name=name, value=value):
            f.state["parameters"]["dict"][name] = value

        forge("DualQML", f"parameter {name}", add)

    # Sizes that the file does not have.
    for base in ("empty", "vectors", "LDA"):
        for size in ([30_000, 30_000], [2**31, 2**31], [1, 2**20 + 1], [8, 8, 8], [64]):
            field(base, f"size {size}", "size", {"tuple": size})
    field("LDA", "size turned", "size", {"tuple": [4, 16]})
    field("LDA", "thin size", "size", {"tuple": [1, 64]})
    field("empty", "largest size", "size", {"tuple": [1024, 1024]})

    # Names.
    for kind, name in {
        "escapes": ESCAPES,
        "bidi": BIDI,
        "surrogate": "\ud800",
        "long": LONG,
        "blank": " ",
        "none": None,
        "array": {"array": {"tensor": "rows"}},
        "nested": DEEP,
        "twice": "person 1",
        "unsorted": "zz",
    }.items():
        forge("vectors", f"name {kind}", lambda f, name=name: swap_name(f, name))

    # Numbers of samples, and samples.
    for name, counts in {
        "wrapping unsigned": np.array([2**63, 2**63, 5, 5, 5], np.uint64),
        "wrapping": np.array([2**62, 2**62, 2**62, 2**62, 15]),
        "negative": np.array([20, -5, 0, 0, 0]),
        "zero": np.array([15, 0, 0, 0, 0]),
        "too few": np.array([3, 3, 3, 3]),
        "too many": np.array([3, 3, 3, 3, 3, 3]),
        "bytes": np.array([3, 3, 3, 3, 3], np.uint8),
        "real": np.array([3.0, 3.0, 3.0, 3.0, 3.0]),
        "a matrix": np.full((5, 1), 3),
    }.items():
        forge(
            "vectors", f"counts {name}", lambda f, c=counts: f.arrays.update(counts=c)
        )
    rows = Forged(contents["vectors"]).arrays["rows"]
    for name, value in {
        "nan": np.where(np.arange(15)[:, None] == 4, np.nan, rows).astype("f4"),
        "inf": np.where(np.arange(15)[:, None] == 4, np.inf, rows).astype("f4"),
        "zero": rows * (np.arange(15)[:, None] > 3),
        "all the same": np.ones_like(rows),
        "large": rows * np.float32(1e37),
        "small": rows * np.float32(1e-40),
        "double": rows.astype(np.float64),
        "bytes": rows.astype(np.uint8),
        "flat": rows.ravel(),
        "no columns": rows[:, :0],
        "no rows": rows[:0],
        "wider": np.tile(rows, 2),
    }.items():
        forge("vectors", f"rows {name}", lambda f, v=value: f.arrays.update(rows=v))
    forge("LDA", "rows as vectors", lambda f: f.state.update(kind="vector"))
    forge("vectors", "rows as images", lambda f: f.state.update(kind="image"))
    forge("one", "a matcher of nobody", lambda f: f.state.update(matcher={"dict": {}}))
    for base in ("LDA", "MLE", "DualQML-W", "vectors"):
        forge(base, "no matcher", drop_matcher)

    # Every array of fitted models: other numbers, types and shapes.
    for base in ("vectors", "K-LDA", "MLE", "GTDA", "DualQML", "DualQML-W"):
        for array in list(Forged(contents[base]).arrays):
            for name, change in CHANGES.items():

                def alter(f, array=array, change=change):
                    f.arrays[array] = change(f.arrays[array])

                forge(base, f"{array} {name}", alter)

    # Every field of statistics of people.
    for base in ("background", "background of many", "background of images"):
        for key in Forged(contents[base]).tree["object"]["parameters"]:
            for kind, value in WRONG.items():

                def put(f, key=key, value=value):
                    f.tree["object"]["parameters"][key] = copy.deepcopy(value)

                forge(base, f"{key} is {kind}", put)
        for array in list(Forged(contents[base]).arrays):
            for name, change in CHANGES.items():

                def turn(f, array=array, change=change):
                    f.arrays[array] = change(f.arrays[array])

                forge(base, f"{array} {name}", turn)
        for shape in ([1, 64], [4, 16], [2**26, 2**26], [8, 9]):

            def reshape(f, shape=shape):
                f.tree["object"]["parameters"]["image_shape"] = {"tuple": shape}

            forge(base, f"shape {shape}", reshape)

    for key in Forged(contents["one and others"]).state["background"]["object"][
        "parameters"
    ]:
        for kind, value in WRONG.items():

            def put_inside(f, key=key, value=value):
                fields = f.state["background"]["object"]["parameters"]
                fields[key] = copy.deepcopy(value)

            forge("one and others", f"background.{key} is {kind}", put_inside)
    forge("one and others", "no background", lambda f: f.state.update(background=None))

    # Other models than the method's.
    def other_model(f):
        other = Forged(contents["nearest"])
        f.state["matcher"]["dict"]["model"] = other.tree
        f.arrays.update(other.arrays)

    forge("vectors", "another model", other_model)
    forge("LDA", "a pipeline of one step", lambda f: steps(f).pop())
    forge("LDA", "steps in another order", lambda f: steps(f).reverse())
    forge("LDA", "a face embedder", lambda f: steps(f).insert(0, EMBEDDER))
    forge("LDA", "a step not fitted", lambda f: unfit(steps(f)[0]))

    # Objects without end, and headers.
    scaler = {"class": "StandardScaler", "parameters": {}, "attributes": {}}
    many = [{"tuple": [f"s{n}", {"object": scaler}]} for n in range(5000)]
    forge("mle", "5,000 steps", lambda f: set_steps(f, many))
    forge("search", "deep", lambda f: nested(f, 60))
    forge("search", "deeper than Python", lambda f: f.tree.update(x=1))
    for key in ("dualqml.state", "dualqml.version", "dualqml.model_id"):
        for kind, text in {
            "deep": "[" * 100_000,
            "closed deep": "[" * 100_000 + "]" * 100_000,
            "long": LONG,
            "escapes": ESCAPES,
            "surrogate": "\ud800",
            "many lists": "[" + "[]," * 1_500_000 + "[]]",
            "many objects": '{"a":' * 90 + "1" + "}" * 90,
            "long number": "9" * 4_000,
            "number": "1" * 100_000,
        }.items():

            def set_string(key=key, text=text):
                header, data = split(contents["vectors"])
                header["__metadata__"][key] = text
                return join(header, data)

            files[f"{key} {kind}"] = set_string
    for number, width in ((1, 2**50), (2_000, 1), (20_000, 1), (150_000, 1)):
        files[f"{number} empty arrays"] = lambda n=number, w=width: join(
            *more_arrays(contents["nearest"], n, w)
        )
    forge("nearest", "a hundred thousand values", lambda f: grow(f, 100_000))
    forge("nearest", "a class of strings of 10 MB", long_labels)
    forge("nearest", "a million labels", many_labels)
    for output in ("arrow", ["pandas"], {"dict": {}}, None):
        forge("local", f"output {output}", lambda f, o=output: set_output(f, o))
    for shape in ([1, 64], [64, 1], [2**26, 2**26], [8, 9]):
        forge("descriptors", f"shape {shape}", lambda f, s=shape: set_shape(f, s))
    return files


EMBEDDER = {
    "tuple": [
        "faces",
        {"object": {"class": "FaceEmbedder", "parameters": {}, "attributes": {}}},
    ]
}

CHANGES = {
    "nan": lambda a: np.full(a.shape, np.nan) if a.dtype.kind == "f" else a - 1,
    "huge": lambda a: np.full(a.shape, 1e300) if a.dtype.kind == "f" else a + 1,
    "zero": lambda a: np.zeros_like(a),
    "half": lambda a: a.astype(np.float16 if a.dtype.kind == "f" else np.int8),
    "unsigned": lambda a: a.astype(np.uint64),
    "transposed": lambda a: np.ascontiguousarray(a.T) if a.ndim == 2 else a[::-1],
    "shorter": lambda a: a[:-1],
    "empty": lambda a: a[:0],
    "no columns": lambda a: a[..., :0],
    "flat": lambda a: a.reshape(-1, 1),
}


def more_arrays(content, number, width):
    header, data = split(content)
    empty = {"dtype": "U8", "shape": [0, width], "data_offsets": [len(data)] * 2}
    return header | {f"a{n}": empty for n in range(number)}, data


def swap_name(f, name):
    f.state["subjects"][0] = name


def drop_matcher(f):
    f.state["matcher"] = None
    f.arrays = {name: f.arrays[name] for name in ("counts", "rows")}


def steps(f):
    model = f.state["matcher"]["dict"]["model"]
    return model["object"]["parameters"]["steps"]


def unfit(step):
    step["tuple"][1]["object"]["attributes"].clear()


def set_steps(f, value):
    f.tree["object"]["parameters"]["steps"] = value
    f.arrays.clear()


def nested(f, levels):
    for _ in range(levels):
        search = f.tree["object"]["attributes"]["best_estimator_"]
        search = {"tuple": ["a", search]}
        pipeline = {"class": "Pipeline", "parameters": {"steps": [search]}}
        f.tree["object"]["attributes"]["best_estimator_"] = {
            "object": pipeline | {"attributes": {}}
        }


def grow(f, number):
    f.tree["object"]["parameters"]["metric"] = [[]] * number


def long_labels(f):
    name = f.tree["object"]["attributes"]["classes_"]["array"]["tensor"]
    f.arrays[name] = np.full((3, 2_500_000), 65, np.uint32)


def many_labels(f):
    name = f.tree["object"]["attributes"]["classes_"]["array"]["tensor"]
    f.arrays[name] = np.full((2_000_000, 1), 0x3B1, np.uint32)


def set_output(f, output):
    first = f.tree["object"]["parameters"]["steps"][0]["tuple"][1]["object"]
    config = {"dict": {"transform": output}}
    first["attributes"]["_sklearn_output_config"] = config


def set_shape(f, shape):
    f.tree["object"]["attributes"]["image_shape_"] = {"tuple": shape}
