# What a person types. `make` alone lists it.

.DEFAULT_GOAL := help
SHELL := /bin/bash
CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)

.PHONY: help build demo bench test lint clean setup download serve stop status local-up local-status local-down \
	cloudrun-pin cloudrun-build cloudrun-stage cloudrun-deploy cloudrun-batch cloudrun-teardown gce-deploy gce-teardown test-scripts

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-17s %s\n", $$1, $$2}'

build: ## Build dgem and dgemma-server, linked into bin/
	$(CARGO) build --release --locked -p dgem -p dgemma-server
	@mkdir -p bin
	@release="$$(cd "$(TARGET)/release" && pwd)" && ln -sf "$$release/dgem" "$$release/dgemma-server" bin/

demo: build ## Start the server on the demo model, make one decision, stop the server
	@scripts/demo.sh

bench: build ## Start the server on the demo model (or MODEL=DIR), run the cases of `dgem bench`, stop the server
	@scripts/bench/triage.sh $(MODEL)

# Selected out of the workspace: a package alone has other features, and its libraries would be built again.
MODEL_TESTS := --workspace --locked --lib --test model --test memory

test: ## Run every test, those of the model with each kind of CPU kernel that this machine has
	$(CARGO) test --workspace --locked
	DGEMMA_CPU=portable $(CARGO) test $(MODEL_TESTS)
	if grep -qs avx512dq /proc/cpuinfo; then \
	  for kind in avx2 avx512; do DGEMMA_CPU=$$kind $(CARGO) test $(MODEL_TESTS) || exit 1; done; fi

lint: ## Check formatting and lints; warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

clean: ## Remove what was built
	$(CARGO) clean
	rm -rf bin

# The server on this machine, in the background; MODEL=DIR, ADDR=…, CTX=…
setup: ## Name what is needed and missing here, then build
	@scripts/setup.sh
	@$(MAKE) build

download: ## Fetch the weights of REPO into model/
	@scripts/local.sh download

serve: ## Start the server in the background and wait until it is ready
	@scripts/local.sh serve

stop: ## Stop it
	@scripts/local.sh stop

status: ## Say whether it runs and is ready
	@scripts/local.sh status

local-up: serve ## Start all that runs on this machine: the server

local-status: status ## Say what of it runs

local-down: stop ## Stop it

# In the cloud: docs/deploy.md. DRY_RUN=1 prints the commands and runs none.
cloudrun-build: ## Build the images with Cloud Build; GPU=l4|rtx
	@cloudrun/build.sh

cloudrun-pin: ## Write the digests of the base images into the Dockerfiles
	@cloudrun/pin.sh

cloudrun-stage: ## Put the weights into a bucket
	@cloudrun/stage.sh

cloudrun-deploy: ## Deploy the server to Cloud Run
	@cloudrun/deploy.sh

cloudrun-batch: ## Decide the rows of ROWS with a Cloud Run job
	@cloudrun/batch.sh

cloudrun-teardown: ## Take the service down; ALL=1: and all that is stored
	@cloudrun/teardown.sh

gce-deploy: ## Start a machine with a GPU on Compute Engine; PRECISION=4|8|16
	@gce/deploy.sh

gce-teardown: ## Delete the machines
	@gce/teardown.sh

test-scripts: ## Check the scripts, Dockerfiles and YAML, with no cloud
	@scripts/shell.sh
