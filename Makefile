# Entry points for a fresh Debian 12 with Python 3.11; see README.md.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PYTHON ?= python3.11
VENV   ?= .venv
APT    ?= docker/requirements/install-apt
LOCKS  := docker/requirements
BIN    := $(VENV)/bin

# Write bytecode even where the environment forbids it: without it, each process imports TensorFlow in 7 s instead of 2.
export PYTHONDONTWRITEBYTECODE :=

# One more than processors: with as many, a quarter of the processors' time was idle, because many tests wait.
TESTERS ?= $(shell expr $$(nproc) + 1)

# Show pip's output only if it fails.
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input install -qq --no-warn-script-location --require-hashes

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: apt $(VENV)/.training ## install the steps' dependencies: Debian packages, and Python packages in .venv

.PHONY: clang
clang: $(VENV)/.steps ## build a clang with the pretrained policies, without training (3 minutes): build/clang
	@$(BIN)/mlgo toolchain --mode release --policy pretrained --output build/clang
	@echo "next: source $(VENV)/bin/activate && cd YOUR_PROJECT && mlgo shrink"

.PHONY: demo
demo: setup ## train a policy on nine Debian packages and build a clang that embeds it (20 minutes)
	@$(BIN)/mlgo run --recipe components/core/projects/recipes/demo.yaml --preset demo --output runs/demo

.PHONY: test
test: lint ## run all tests, including the whole pipeline with the preset tiny
	@.ci/with-docker $(BIN)/python -m pytest -n $(TESTERS) --dist loadgroup --no-loadscope-reorder --durations 40

.PHONY: test-fast
test-fast: setup-test ## run the tests that take only seconds
	@$(BIN)/python -m pytest -m unit -n $(TESTERS) --dist loadgroup --no-loadscope-reorder

.PHONY: check
check: setup-test ## check what differs from main: style, types, and the changed files' unit tests (a minute)
	@.ci/check

.PHONY: lint
lint: setup-test ## check style and types of all files, with the tools of .pre-commit-config.yaml
	@$(BIN)/pre-commit run --all-files

.PHONY: bench
bench: setup-test ## run the benchmarks; writes build/bench.json
	@$(BIN)/python -m tests.bench

.PHONY: pipeline
pipeline: setup-pipelines ## recompile the pipelines: pipelines/compiled/
	@for name in training sdk shrink smoke; do \
	  $(BIN)/mlgo pipeline compile --pipeline $$name --output pipelines/compiled/$$name.yaml || exit; done

.PHONY: reference
reference: $(VENV)/.steps ## write docs/reference.md from the commands' options and the pipelines' parameters
	@$(BIN)/python docs/generate_reference.py

.PHONY: images
images: setup ## build the container images of the steps; writes build/images.json
	@$(BIN)/mlgo images build

# What the MLflow server of the tests imports only where it is used.
UNUSED_BY_MLFLOW_SERVER := contourpy cycler docker fonttools graphene graphql-core graphql-relay gunicorn huey joblib \
  kiwisolver matplotlib narwhals pillow prettytable pyarrow pyparsing scikit-learn scipy skops threadpoolctl wcwidth

.PHONY: lock
lock: $(VENV)/.training ## update the locks: Python packages with hashes, the images' Debian packages with versions
	@$(BIN)/python -m venv build/lock && build/lock/bin/pip install -q uv==0.13.9
	@set -e; \
	resolve() { build/lock/bin/uv pip compile -q --generate-hashes --no-emit-index-url --no-emit-find-links \
	  --no-header --no-annotate --python-version 3.11 --python-platform x86_64-manylinux_2_28 "$$@" pyproject.toml; }; \
	resolve --extra training -o $(LOCKS)/training.txt; \
	resolve --extra training --extra ray -c $(LOCKS)/training.txt -o $(LOCKS)/ray.txt; \
	resolve --extra training --extra ray --extra test --extra dev -c $(LOCKS)/ray.txt -o $(LOCKS)/test.txt; \
	resolve -c $(LOCKS)/training.txt -o $(LOCKS)/steps.txt; \
	resolve --extra cluster -c $(LOCKS)/steps.txt -o $(LOCKS)/cluster.txt; \
	resolve --extra pipelines -o $(LOCKS)/pipelines.txt; \
	echo gcp-storage-emulator | build/lock/bin/uv pip compile -q --generate-hashes --no-emit-index-url --no-header \
	  --no-annotate --python-version 3.11 -c $(LOCKS)/test.txt -o $(LOCKS)/bucket.txt -; \
	add() { build/lock/bin/uv pip compile -q --generate-hashes --no-emit-index-url --no-header --no-annotate \
	  --python-version 3.11 --python-platform x86_64-manylinux_2_28 -c $(LOCKS)/pipelines.txt "$$@" -; }; \
	echo google-cloud-aiplatform | add --no-deps -o build/lock/vertex.txt; \
	printf '%s\n' grpc-google-iam-v1 grpcio kfp-kubernetes model-registry mlflow | \
	  add $(addprefix --no-emit-package ,$(UNUSED_BY_MLFLOW_SERVER)) -o build/lock/others.txt; \
	awk 'FNR == NR {if (/^[^ ]/) known[$$1]; next} /^[^ ]/ {keep = !($$1 in known)} keep' \
	  $(LOCKS)/pipelines.txt build/lock/vertex.txt build/lock/others.txt > $(LOCKS)/schemas.txt; \
	awk '/^[^ ]/ {keep = /^(packaging|setuptools|wheel)==/} keep' $(LOCKS)/training.txt > $(LOCKS)/build.txt; \
	$(BIN)/python $(LOCKS)/keep-used-hashes build/lock/bin/uv $(addprefix $(LOCKS)/,$(addsuffix .txt, \
	  build steps cluster training ray test pipelines schemas bucket))
	@$(LOCKS)/pin-apt $(LOCKS)/apt-toolchain.txt $(LOCKS)/apt-clang.txt $(LOCKS)/apt-training.txt $(LOCKS)/apt-ci.txt

.PHONY: lock-images
lock-images: ## pin the base images by digest, in docker/requirements/base-images.txt and every file that names them
	@$(LOCKS)/pin-images

.PHONY: clean
clean: ## remove .venv, build/ and caches; keep runs/
	rm -rf $(VENV) $(VENV)-pipelines build .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---------------------------------------------------------------------------------------------------------------------

.PHONY: apt
apt:
	@$(APT) $(LOCKS)/apt.txt

.PHONY: setup-ray
setup-ray: $(VENV)/.ray ## install Ray in .venv, for --workers ray

$(VENV)/.ray: $(LOCKS)/ray.txt $(VENV)/.training
	@echo "installing Ray in $(VENV)"
	@$(PIP) --no-build-isolation --no-compile -r $(LOCKS)/ray.txt
	@touch $@

# A separate environment for kfp, which needs another protobuf version than TensorFlow.
.PHONY: setup-pipelines
setup-pipelines: $(VENV)-pipelines/.done

$(VENV)-pipelines/.done: $(LOCKS)/build.txt $(LOCKS)/pipelines.txt pyproject.toml | apt
	@echo "installing Python packages in $(VENV)-pipelines"
	@$(PYTHON) -m venv $(VENV)-pipelines
	@$(PIP:$(BIN)/%=$(VENV)-pipelines/bin/%) -r $(LOCKS)/build.txt
	@$(PIP:$(BIN)/%=$(VENV)-pipelines/bin/%) --no-build-isolation --no-compile -r $(LOCKS)/pipelines.txt
	@$(VENV)-pipelines/bin/python -m pip --disable-pip-version-check install -qq --no-deps --no-build-isolation -e .
	@touch $@

# What servers publish about their requests, which tests compare ours with: the clients and messages of Vertex AI, the
# settings of pods of kfp-kubernetes, the models of Kubeflow's Model Registry; and MLflow's server. Without dependencies
# that these do not need: BigQuery, for example.
$(VENV)-pipelines/.schemas: $(LOCKS)/schemas.txt $(VENV)-pipelines/.done
	@echo "installing the servers' schemas in $(VENV)-pipelines"
	@$(PIP:$(BIN)/%=$(VENV)-pipelines/bin/%) --no-deps --no-compile -r $(LOCKS)/schemas.txt
	@touch $@

.PHONY: setup-test
setup-test: $(VENV)/.test $(VENV)-pipelines/.schemas
	@$(APT) $(LOCKS)/apt.txt $(LOCKS)/apt-test.txt

# Each stamp file is made once, and again if its lock changes.
$(VENV)/bin/python: | apt
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) is not installed; remedy: apt-get install python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

# .steps is enough to link a clang, without TensorFlow.
# Install the build tools of source distributions first, so that pip does not fetch unlocked ones.
$(VENV)/.steps $(VENV)/.training: $(VENV)/.%: $(LOCKS)/build.txt $(LOCKS)/%.txt pyproject.toml | $(VENV)/bin/python
	@echo "installing Python packages in $(VENV)"
	@$(PIP) -r $(LOCKS)/build.txt
	@$(PIP) --no-build-isolation --no-compile -r $(LOCKS)/$*.txt
	@$(BIN)/python -m pip --disable-pip-version-check install -qq --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.test: $(LOCKS)/test.txt $(VENV)/.training
	@echo "installing the tests' Python packages in $(VENV)"
	@$(PIP) --no-build-isolation --no-compile -r $(LOCKS)/test.txt
	@touch $@
