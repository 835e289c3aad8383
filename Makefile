# Everything that people and CI run. It needs make and a Python of at least 3.11 with venv, and makes the rest:
# .venv from the hashed locks, and a real control plane, cached outside the checkout.

PYTHON ?= python3
VENV ?= .venv
ENGINE ?= docker
IMAGE ?= berth:$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
PYTEST_ARGS ?=
DEMO_ARGS ?=
BENCH_ARGS ?=

PY := $(VENV)/bin/python
READY := $(VENV)/.ready
UV := build/lock/bin/uv
UV_VERSION := 0.13.9
COMPILE = $(UV) pip compile --quiet --no-header --universal --python-version 3.11 --fork-strategy fewest \
	--generate-hashes --no-emit-index-url $(if $(UPGRADE),--upgrade)
BENCHES := placement waiting gang idle replay autoscale services mix spot

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help venv demo test lint fresh bench $(addprefix bench-,$(BENCHES)) crds controlplane image lock clean

help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

venv: $(READY) ## The virtual environment, from requirements/dev.txt

$(READY): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Berth needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) -V 2>&1). Say which: make PYTHON=python3.12 …" >&2; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) || \
	  { echo "This Python cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv" >&2; rm -rf $(VENV); exit 1; }
	$(PY) -m pip install --quiet --require-hashes -r requirements/dev.txt
	$(PY) -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

demo: $(READY) ## A control plane, a fleet, gangs placed and recovered, a service scaled (DEMO_ARGS=--keep leaves it running)
	$(PY) -m berth.cli.main demo $(DEMO_ARGS)

test: $(READY) ## All tests, on a real control plane (PYTEST_ARGS="-k chart" for some)
	$(PY) -m pytest $(PYTEST_ARGS)

lint: $(READY) fresh ## Style, types, layers, generated files, chart
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m mypy --explicit-package-bases charts benchmarks
	$(VENV)/bin/lint-imports
	"$$($(PY) -c 'from berth.devcluster import tools; print(tools.helm())')" lint --strict --quiet charts/berth

crds: $(READY) ## Write what is generated: definitions, reference, tables of catalogue and metrics, the chart's roles and values
	$(PY) -m berth.api.generate
	$(PY) -m berth.catalogue.page docs/catalogue.md
	$(PY) -m berth.controllers.metrics_page docs/metrics.md
	rm -rf charts/berth/files/crds && cp -r crds charts/berth/files/crds
	$(PY) -m berth.controllers.permissions --out charts/berth/templates/rbac.generated.yaml
	$(PY) charts/readme.py charts/berth

fresh: $(READY) # Fails when something generated is not what `make crds` would write.
	$(PY) -m berth.api.generate --check
	@$(PY) -m berth.catalogue.page --check docs/catalogue.md || { echo "docs/catalogue.md is stale; run: make crds" >&2; exit 1; }
	@$(PY) -m berth.controllers.metrics_page --check docs/metrics.md || { echo "docs/metrics.md is stale; run: make crds" >&2; exit 1; }
	@diff -r crds charts/berth/files/crds || { echo "charts/berth/files/crds is not crds/; run: make crds" >&2; exit 1; }
	$(PY) -m berth.controllers.permissions --check --out charts/berth/templates/rbac.generated.yaml
	$(PY) charts/readme.py --check charts/berth

controlplane: $(READY) ## Fetch or build the binaries of the control plane (once; up to 25 minutes)
	$(PY) -c 'from berth.devcluster.binaries import Binaries; Binaries.ensure(print)'

bench: $(addprefix bench-,$(BENCHES)) ## Every benchmark, or bench-placement, -waiting, -gang, -idle, -replay, -autoscale, -spot, -mix, -services (SCALE=small: a smoke run)

$(addprefix bench-,$(BENCHES)): bench-%: $(READY)
	@$(PY) -m benchmarks.$* $(BENCH_ARGS)

image: ## The container image (ENGINE=podman, IMAGE=registry/berth:tag)
	$(ENGINE) build --tag $(IMAGE) .

lock: $(UV) ## Compile requirements/*.txt from pyproject.toml (UPGRADE=1 takes newer versions)
	$(COMPILE) --output-file requirements/build.txt requirements/build.in
	$(COMPILE) --output-file requirements/runtime.txt pyproject.toml
	$(COMPILE) --output-file requirements/dev.txt --extra dev --constraint requirements/runtime.txt pyproject.toml requirements/build.in

$(UV):
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet uv==$(UV_VERSION)

clean: ## Remove what was made here (not the cached control plane)
	rm -rf $(VENV) build dist operator/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
