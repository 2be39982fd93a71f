# What a person types. `make` alone lists it.

.DEFAULT_GOAL := help
SHELL := /bin/bash
CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)

.PHONY: help build demo test lint clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-10s %s\n", $$1, $$2}'

build: ## Build dgem and dgemma-server, linked into bin/
	$(CARGO) build --release --locked -p dgem -p dgemma-server
	@mkdir -p bin
	@release="$$(cd "$(TARGET)/release" && pwd)" && ln -sf "$$release/dgem" "$$release/dgemma-server" bin/

demo: build ## Start the server on the demo model, make one decision, stop the server
	@scripts/demo.sh

test: ## Run every test, those of the model with each kind of CPU kernel that this machine has
	$(CARGO) test --workspace --locked
	DGEMMA_CPU=portable $(CARGO) test -p diffusion-gemma --locked --lib --tests
	if grep -qs avx512dq /proc/cpuinfo; then DGEMMA_CPU=avx512 $(CARGO) test -p diffusion-gemma --locked --lib --tests; fi

lint: ## Check formatting and lints; warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

clean: ## Remove what was built
	$(CARGO) clean
	rm -rf bin
