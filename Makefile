# `make demo` and `make test` set up all that they need; the others do too.
PYTHON ?= python3
VENV := .venv/bin
PYTEST_ARGUMENTS ?=
BENCH_ARGUMENTS ?=
COST_ARGUMENTS ?=
SYNTH_ARGUMENTS ?=
SOAK_ARGUMENTS ?=

# Else each process that a test starts would compile its libraries' sources anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup setup-demo demo test frameworks lint lock docs synth bench dist sbom soak cost e2e clean

help:  ## List the targets.
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: setup-demo  ## Make the environments for development, and for the tests with frameworks and original clients.
	@$(PYTHON) tools/setup_environment.py dev
	@$(PYTHON) tools/setup_environment.py docs
	@$(PYTHON) tools/setup_environment.py frameworks
	@$(PYTHON) tools/setup_environment.py interop
	@$(PYTHON) tools/setup_environment.py mxnet
	@$(PYTHON) tools/setup_environment.py oldest
	@$(PYTHON) tools/setup_environment.py sagemaker2
	@$(PYTHON) tools/setup_environment.py sagemaker3
	@$(VENV)/python -m infra.packaging

setup-demo:
	@$(PYTHON) tools/setup_environment.py demo

demo: setup-demo  ## Watch a healthy and a sick training run on this machine.
	@$(VENV)/python -m examples.demo

# Three workers on two cores: many tests wait for servers and scripts.
test: setup lint  ## Run every check and every test.
	@$(VENV)/python -m pytest -n 3 --dist loadfile $(PYTEST_ARGUMENTS)
	@$(VENV)/python -m tools.test_frameworks

frameworks: setup  ## Run the tests of hooks for frameworks only; see `python -m tools.test_frameworks --help`.
	@$(VENV)/python -m tools.test_frameworks

lint: setup  ## Check style, types and import directions.
	@$(VENV)/ruff check .
	@$(VENV)/ruff format --check .
	@$(VENV)/mypy
	@$(VENV)/lint-imports

# uv would reuse the digests of an output file that exists, so it writes another one.
lock:  ## Write the digests of constraints.txt, after `make setup` and your change of a version in it.
	@mkdir -p .build
	@$(VENV)/python -m uv pip compile -q --universal --python-version 3.11 --no-deps --generate-hashes --no-annotate \
		--custom-compile-command "make lock" constraints.txt -o .build/constraints.txt
	@mv .build/constraints.txt constraints.txt

docs:  ## Build the documentation, strictly, into .build/docs; needs no network.
	@$(PYTHON) tools/setup_environment.py docs
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet
	@echo "docs: .build/docs/index.html"

synth: setup-demo  ## Write the template to cdk.out, without credentials; SYNTH_ARGUMENTS="-c KEY=VALUE" changes settings.
	@$(VENV)/python -m infra.packaging
	@$(VENV)/python -m infra.app $(SYNTH_ARGUMENTS)

bench:  ## Compare the speed with other tools; BENCH_ARGUMENTS=--help shows how to measure less.
	@$(PYTHON) tools/setup_environment.py peers
	@.venv-peers/bin/python -m benchmarks $(BENCH_ARGUMENTS)

dist: setup  ## Build the wheel and the sdist into dist/.
	@rm -rf dist
	@$(VENV)/python -m build --no-isolation --outdir dist .
	@$(VENV)/python -m twine check --strict dist/*.whl dist/*.tar.gz

sbom:  ## Write a bill of materials of the functions' layer, in CycloneDX's format, into dist/.
	@$(PYTHON) tools/setup_environment.py release
	@mkdir -p dist
	@.venv-release/bin/cyclonedx-py requirements infra/layer-requirements.txt --output-reproducible \
		--output-file dist/layer-sbom.json
	@echo "sbom: dist/layer-sbom.json"

soak: setup  ## Let 50 jobs train at once while the poller dies and services fail; see SOAK_ARGUMENTS=--help.
	@$(VENV)/python -m tests.soak $(SOAK_ARGUMENTS)

cost: setup-demo  ## Print what a deployment costs; COST_ARGUMENTS=--help shows the options.
	@$(VENV)/python -m benchmarks.cost $(COST_ARGUMENTS)

e2e: setup-demo  ## Deploy with CDK's own command into a second emulator, ministack, and run the demo there.
	@$(PYTHON) tools/setup_environment.py dev
	@$(PYTHON) tools/setup_environment.py e2e
	@$(VENV)/python -m pytest -x -s -p no:cacheprovider --durations=0 tests/e2e/second_emulator/demo_on_ministack.py

clean:  ## Remove everything that can be made again.
	rm -rf .venv .venv-* .build cdk.out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
