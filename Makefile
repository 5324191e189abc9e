# `make` prints what there is.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
TOOLS := tests/tools
COLLECTION := .cache/ansible_collections/corral/virt
TESTED := python $(TOOLS)/offline_ansible_test.py
FAST := lint units sanity docs build

# The venv's tools first, for recipes and all they start.
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.PHONY: help
help: ## print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

.PHONY: packages lab-packages
packages: ## install missing system packages (bindep.txt) through apt; not as root: say the command
	@$(PYTHON) $(TOOLS)/packages.py

lab-packages:
	@$(PYTHON) $(TOOLS)/packages.py lab

.PHONY: venv
venv: packages link ## make or renew .venv, with what requirements-dev.txt pins
	@$(PYTHON) $(TOOLS)/venv.py .venv

.PHONY: link
link: $(COLLECTION) ## make the .cache link that lets this checkout pass for an installed collection
$(COLLECTION):
	@mkdir -p $(@D) && ln -sfn ../../.. $@

.PHONY: lint ruff mypy yamllint ansible-lint shellcheck
lint: venv ## ruff, mypy --strict, yamllint, ansible-lint --profile production, shellcheck; each also alone: make mypy
	@$(MAKE) -k ruff mypy yamllint ansible-lint shellcheck

ruff: venv
	ruff check --output-format concise .

mypy: venv
	mypy -p ansible_collections.corral.virt.plugins -p ansible_collections.corral.virt.tests

yamllint: venv
	yamllint --strict .

ansible-lint: venv
	ansible-lint -q

shellcheck: venv
	shellcheck .ci/run $(wildcard tests/*/*.sh roles/*/files/*.sh)

.PHONY: sanity
sanity: venv ## ansible-test: sanity, and the unit tests as ansible-test runs them
	$(TESTED) sanity --local
	$(TESTED) units --local --python "$$(python -c 'import sys; print("%d.%d" % sys.version_info[:2])')"

.PHONY: units one golden payload
units: venv ## unit, golden and contract tests
	pytest -q -n 2

one: venv ## one test: make one T=tests/unit/test_rooms.py::test_name
	pytest -v $(if $(findstring lab,$(T)),-m lab) "$(T)"

golden: venv ## one golden case: make golden CASE=disk_grows; with REGENERATE=1 its expected files are written anew
	pytest -v tests/golden $(if $(CASE),-k "$(CASE)") $(if $(REGENERATE),--regenerate)

payload: ## what each module sends to a host: files, lines, KiB
	@$(PYTHON) $(TOOLS)/payload.py

.PHONY: docs
docs: venv ## check the documentation: modules, roles, guides, changelog fragments
	antsibull-docs lint-collection-docs --plugin-docs --validate-collection-refs all --check-extra-docs-refs $(COLLECTION)
	antsibull-changelog lint

.PHONY: build
build: venv ## build the collection's tarball, install it aside and read it back; leaves build/
	rm -rf build/installed build/corral-virt-*.tar.gz
	ansible-galaxy collection build --force --output-path build
	cd build && ANSIBLE_COLLECTIONS_PATH=$(CURDIR)/build/installed ansible-galaxy collection install --offline \
	  -p installed corral-virt-*.tar.gz
	cd build && ANSIBLE_COLLECTIONS_PATH=$(CURDIR)/build/installed ansible-doc -l corral.virt

.PHONY: test test-fast test-lab test-matrix
ifdef T
test: one
else
test: venv ## everything, with seconds per stage (build/test.json); one test: make test T=path::name
	@$(PYTHON) $(TOOLS)/stages.py $(FAST) test-lab molecule
endif

test-fast: venv ## everything that needs no lab
	@$(PYTHON) $(TOOLS)/stages.py $(FAST)

test-lab: venv lab-packages ## the whole story on real hosts made for it, on this machine
	pytest -v -m lab tests/lab/test_story.py # it measures how long a guest is silent, so it has the machine for itself
	pytest -v -n 2 --dist loadfile -m lab tests/lab --ignore tests/lab/test_story.py

.PHONY: molecule
molecule: venv lab-packages ## the role scenarios of extensions/molecule, on the lab's hosts
	molecule test --all

test-matrix: venv ## sanity, unit, golden and contract tests on every other Python of this machine
	@$(PYTHON) $(TOOLS)/matrix.py

.PHONY: bench
bench: venv lab-packages ## side by side with others who do the same, in one run (build/bench.json); one: make bench BENCH=converge
	@PYTHONPATH=.cache:tests/lab python -m ansible_collections.corral.virt.tests.bench.bench $(BENCH)

.PHONY: faults
faults: venv lab-packages ## hurt migrations on real hosts (build/faults.json); one: make faults FAULT="name clash"; at random: SOAK_MINUTES=30 SEED=1
	@PYTHONPATH=.cache:tests/lab SOAK_MINUTES="$(SOAK_MINUTES)" SEED="$(SEED)" \
	  python -m ansible_collections.corral.virt.tests.faults.faults "$(FAULT)"

.PHONY: demo demo-down
demo: venv lab-packages ## the whole story on two bare hosts made for it, on this machine; again: on the same hosts
	@python tests/lab/demo.py up

demo-down: venv ## remove the demo's hosts
	@python tests/lab/demo.py down

.PHONY: clean
clean: ## remove what make made, except labs (make demo-down)
	rm -rf .venv .cache .ansible tests/output
	if [ -d build ]; then find build -mindepth 1 -maxdepth 1 ! -name lab -exec rm -rf {} +; fi
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
