# `make` prints what there is.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
TOOLS := tests/tools
COLLECTION := .cache/ansible_collections/corral/virt

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

.PHONY: clean
clean: ## remove what make made, except labs (make demo-down)
	rm -rf .venv .cache .ansible build/*.tar.gz tests/output
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
