# Everything happens in .venv, made on first use. The demo installs only what it needs;
# all other targets install every extra.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO_READY := $(VENV)/.demo-ready
READY := $(VENV)/.ready

.PHONY: setup demo test test-cpus lint bench docs dist test-oldest clean

setup: $(READY)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(DEMO_READY): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[demo]"
	touch $@

# This includes the demo.
$(READY): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[sdp,demo,faces,service,dask,search,dev]"
	touch $(DEMO_READY) $@

demo: $(DEMO_READY)
	$(BIN)/dualqml reproduce --features pixels,local -m 2,4 --repeats 10 \
	    --out demo-results --resume

# The report is opened in a real browser by a test, and OpenCV needs a library.
test: lint
	sh scripts/install-system-packages.sh
	$(BIN)/python scripts/test_cpus.py --quick
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations=40

# The numerical tests with OpenBLAS's kernels for other processors.
test-cpus: $(READY)
	$(BIN)/python scripts/test_cpus.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vulture

bench: $(READY)
	$(BIN)/python -m benchmarks

# The pages are looked at in a real browser too.
docs: $(READY)
	sh scripts/install-system-packages.sh
	OPENBLAS_NUM_THREADS=1 $(BIN)/sphinx-build -W --keep-going -b html docs \
	    docs/_build/html
	$(BIN)/python scripts/check_site.py docs/_build/html
	$(BIN)/python -m scripts.check_pages docs/_build/html

# The wheel and the source distribution in dist/, tried in a clean environment.
dist: $(READY)
	$(BIN)/python scripts/make_distribution.py

# The core and the estimators on the oldest versions that pyproject.toml allows.
test-oldest:
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet "numpy==1.26.*" "scipy==1.11.*" \
	    "scikit-learn==1.6.0" "joblib==1.3.*" "threadpoolctl==3.2.*" \
	    "pillow==10.0.*" pytest pytest-timeout hypothesis mpmath
	.venv-oldest/bin/python -m pip install --quiet --no-deps --editable .
	.venv-oldest/bin/python -m pytest -q -m "not realdata" tests/core tests/images \
	    tests/extractors tests/test_linalg.py tests/test_saved_state.py

clean:
	rm -rf $(VENV) .venv-oldest demo-results dist docs/_build docs/api/generated docs/auto_examples \
	    docs/_static/front_page_*.svg
