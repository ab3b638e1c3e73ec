# Needs Rust and make, and the tests Go >= 1.26; `tools` and `kubernetes` bring the rest. Cargo writes to stderr, so that
# stdout is what a program says.

CARGO ?= cargo
# Further arguments of the demo and of bench-kubernetes, as in `make demo ARGS='--output json'`; variables of the soak.
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: demo test lint generate bench bench-kubernetes soak-targets soak-slots build kubernetes clean tools help

# The debug build: all that the demo measures is waiting, and the first build takes a third of the time.
demo: tools ## Five Redis masters, three replicas and real failures, on this machine
	@$(CARGO) run -- demo $(ARGS)

test: tools ## All tests
	$(CARGO) fmt --check
	scripts/build-kubernetes $(CARGO) test

lint: ## Format, lints and, where cargo-deny is installed, licences and bans
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets -- -D warnings
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny check; \
	else echo 'cargo-deny is not installed: licences and advisories were not checked (cargo install cargo-deny)'; fi

generate: ## Write the files that are made from the source anew
	REDLOCK_REGENERATE=1 $(CARGO) test --quiet --lib --test repository

bench: tools ## Measure against the floor of bare Redis commands
	$(CARGO) bench --bench lease

bench-kubernetes: tools ## Measure the operator on a real API server; ARGS=takeover for one scenario
	scripts/build-kubernetes $(CARGO) bench --bench kubernetes -- $(ARGS)

soak-targets: ## Two clusters, random faults, 2 hours; ARGS='REDLOCK_TRANSITIONS=50 REDLOCK_SEED=7' for less and the same again
	$(ARGS) scripts/build-kubernetes $(CARGO) test --test kubernetes -- --ignored --nocapture --test-threads=1 two_clusters::soak

soak-slots: ## 500 slots in two clusters under faults, and 5 real minutes; ARGS='REDLOCK_SLOTS=50 REDLOCK_SEED=7' as well
	$(ARGS) scripts/build-kubernetes $(CARGO) test --test kubernetes -- --ignored --nocapture --test-threads=1 once_per_schedule::soak

build: ## The release binary, target/release/redlock
	$(CARGO) build --release

kubernetes: ## The API server of the tests, into a cache in the home directory; KUBE_VERSION=1.33.13 for another one
	scripts/build-kubernetes

clean: ## Remove all that was built
	$(CARGO) clean

tools: # redis-server, when it is missing
	@scripts/install-tools

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
