# Every target sets up what it needs.
PYTHON ?= python3
VENV := .venv/bin
# Three on two cores: many tests wait for servers and scripts.
WORKERS ?= 3
SESSIONS ?= 2
PYTEST_ARGUMENTS ?=
BENCH_ARGUMENTS ?=
COST_ARGUMENTS ?=
SYNTH_ARGUMENTS ?=
SOAK_ARGUMENTS ?=
EVALUATORS ?= per_rule

# Kinds of tools/setup_environment.py that only `make test-all` needs.
OTHER_ENVIRONMENTS := frameworks interop mxnet oldest sagemaker2 sagemaker3

# Otherwise each process that a test starts would compile the sources of its libraries again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup setup-all setup-demo setup-dev demo test pytest test-all lint lock docs synth bench dist sbom soak cost e2e clean

help:  ## List the targets.
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: setup-dev  ## Set up the two environments of `make test`: .venv and .venv-docs.
	@$(PYTHON) tools/setup_environment.py docs
	@$(VENV)/python -m infra.packaging

setup-all: setup  ## Set up the environments of `make test-all`, too: frameworks and original clients.
	@set -e; for kind in $(OTHER_ENVIRONMENTS); do $(PYTHON) tools/setup_environment.py $$kind; done

setup-demo:
	@$(PYTHON) tools/setup_environment.py demo

setup-dev: setup-demo
	@$(PYTHON) tools/setup_environment.py dev

demo: setup-demo  ## Watch a healthy and a sick training run on this machine.
	@$(VENV)/python -m examples.demo

test: lint pytest  ## Run the checks and the tests that a contributor needs.

# A target of its own: with `--jobs`, mypy's single process and the tests run side by side.
pytest: setup
	@$(VENV)/python -m pytest -n $(WORKERS) --dist loadfile -m "not other_environment" $(PYTEST_ARGUMENTS)

test-all: setup-all  ## Run the rest: other frameworks, the original clients, the oldest versions.
	@$(VENV)/python -m tools.test_environments --at-a-time $(SESSIONS)

lint: setup-dev  ## Check style, types and import directions.
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

dist: setup-dev  ## Build the wheel and the sdist into dist/.
	@rm -rf dist
	@$(VENV)/python -m build --no-isolation --outdir dist .
	@$(VENV)/python -m twine check --strict dist/*.whl dist/*.tar.gz

sbom: setup-dev  ## Write a bill of materials of the functions' layer, in CycloneDX's format, into dist/.
	@mkdir -p dist
	@$(VENV)/python -m infra.bill_of_materials dist/layer-sbom.json
	@echo "sbom: dist/layer-sbom.json"

soak: setup-dev  ## Let 50 jobs train at once while the poller dies and services fail; see SOAK_ARGUMENTS=--help.
	@$(VENV)/python -m tests.soak $(SOAK_ARGUMENTS)

cost: setup-demo  ## Print what a deployment costs; COST_ARGUMENTS=--help shows the options.
	@$(VENV)/python -m benchmarks.cost $(COST_ARGUMENTS)

e2e: setup-dev  ## Deploy with CDK's own command into a second emulator, ministack, and run the demo there; EVALUATORS=grouped.
	@$(PYTHON) tools/setup_environment.py e2e
	@EVALUATORS=$(EVALUATORS) $(VENV)/python -m pytest -x -s -p no:cacheprovider --durations=0 tests/e2e/second_emulator/demo_on_ministack.py

clean:  ## Remove everything that can be made again.
	rm -rf .venv .venv-* .build cdk.out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
