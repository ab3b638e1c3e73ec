# Needs Rust and make, and Go >= 1.26 for the tests; `tools` and `kubernetes` install the rest. Cargo writes to
# stderr, so stdout has only the output of the program.

CARGO ?= cargo
# Further arguments of the demo and of bench-kubernetes, as in `make demo ARGS='--output json'`; variables of the
# soaks.
ARGS ?=
SEEDS ?= 100000
FIRST_SEED ?= 0
SEQUENCES ?= 30000
WORLDS ?= 2000
SEED ?=
FENCED ?=
BASE ?=
TAG ?=
# For the sequences of inputs of the controller: three times as fast. Only this package is rebuilt, no dependency.
OPTIMISED = --config 'profile.test.package.redlock-operator.opt-level = 1'

# Compiled for the cache of Go: a test would compile them while others measure.
GO_PROGRAMS = for modules in tests/client-go/*.mod examples/warm-controller/controller/go.mod; do \
	(cd "$$(dirname "$$modules")" && CGO_ENABLED=0 go build -modfile "$$(basename "$$modules")" -o /dev/null .) || exit; done

.DEFAULT_GOAL := help
.PHONY: world world-planted demo test test-servers test-valkey test-kubernetes test-others test-redis test-model test-sequences test-doc check simulate model lint docs release-check generate bench bench-run order-run bench-kubernetes soak-targets soak-fencing soak-slots soak-leases soak-registers prove-run csi-sanity node-vm chaos planted mutants e2e e2e-clusters build image test-image kubernetes clean tools help

##@ Every day

# Without the planted faults: they check the simulation, not the change. `make test` has them. Some tests wait for a timeout, and
# the others run beside them.
check: export RUST_TEST_THREADS ?= 6
check: tools ## After each edit: format, clippy, unit and property tests, 2,000 seeds of the simulation
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	REDLOCK_SEEDS=2000 REDLOCK_SEQUENCES=1000 WORLDS=2 REDLOCK_WORLDS=1 $(CARGO) test --workspace --lib --test core -- --skip planted

# Most tests wait for leases and servers: two at once would leave a machine with two cores idle. The tests of Kubernetes take as
# long as the others that wait, and run beside them. In a third place, the tests with masters alone come first; the model and
# the sequences only compute, in the time that the others leave. The output of each group is printed when the group ends.
test: export RUST_TEST_THREADS ?= 6
test: tools ## All tests
	$(CARGO) fmt --all --check
	scripts/build-kubernetes $(CARGO) test --workspace --no-run
	@$(GO_PROGRAMS)
	RUST_TEST_THREADS=1 $(CARGO) test --workspace --test redis -- hostile::
	RUST_TEST_THREADS=1 scripts/build-kubernetes $(CARGO) test --workspace --test agent --test operator -- http_attack::
	@+$(MAKE) --jobs 3 --output-sync=target --keep-going --no-print-directory test-kubernetes test-others test-redis test-model test-sequences test-doc test-valkey

# Its tests wait for API servers and leases: seven at once leave time of the CPUs for the others.
test-kubernetes: export RUST_TEST_THREADS = 7
test-kubernetes:
	scripts/build-kubernetes $(CARGO) test --workspace --test kubernetes

test-others:
	scripts/build-kubernetes $(CARGO) test --workspace --no-fail-fast --lib --bins --examples --test '[!kmr]*' --test 'r[!e]*' --test 'rep*' -- --skip index::simulation:: --skip controller::world:: --skip http_attack::

# Its tests wait for seals. Those of hostile masters measure what an attack takes of the CPUs, and ran alone.
test-redis: export RUST_TEST_THREADS = 8
test-redis:
	$(CARGO) test --workspace --test redis -- --skip hostile::

test-model:
	nice -n 19 $(CARGO) test --workspace --test model

# What differs between Redis and Valkey: permissions, the process behind a vote, errors.
test-valkey:
	@FILTER='acl:: process:: programs:: unknown:: specification::' CARGO='$(CARGO)' scripts/test-servers valkey-9.1.2

test-doc:
	$(CARGO) test --workspace --doc

lint: ## Format, clippy, dependencies (licences, bans, sources, advisories), workflows, words
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	scripts/install-lint-tools scripts/check-dependencies
	scripts/install-lint-tools sh -c '"$$ACTIONLINT" -shellcheck= -pyflakes='
	$(CARGO) test --workspace --quiet --test repository words::

# The debug build: the demo measures only waiting times, and the first build takes a third of the time.
demo: tools ## Five Redis masters, three replicas and real failures, on this machine
	@$(CARGO) run -- demo $(ARGS)

build: ## The release binary, target/release/redlock
	$(CARGO) build --release

docs: ## The pages as a book with search, target/book/html
	CARGO='$(CARGO)' scripts/build-docs

generate: ## Write the files that are made from the source anew
	REDLOCK_REGENERATE=1 $(CARGO) test --quiet --lib --test repository

tools: # redis-server, when it is missing
	@scripts/install-tools

help: ## This list
	@awk -F ':.*## ' '/^##@ / { printf "\n%s:\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

clean: ## Remove all that was built
	$(CARGO) clean

##@ One kind of test

test-sequences: ## Random inputs of the controller's index: SEQUENCES=1000000 FIRST_SEED=0; and 24 random worlds
	FIRST_SEED=$(FIRST_SEED) REDLOCK_SEQUENCES=$(SEQUENCES) WORLDS=24 nice -n 19 $(CARGO) $(OPTIMISED) test --workspace --lib -- index::simulation:: controller::world::

test-servers: export RUST_TEST_THREADS ?= 4
test-servers: tools ## The tests that need a server, on each version of Redis and Valkey that scripts/servers.txt names; ARGS=valkey-9.1.2 for one
	@CARGO='$(CARGO)' scripts/test-servers $(ARGS)

simulate: SIMULATED = soak::simulate$(if $(FENCED),_fenced)
simulate: SIMULATED_SEED = $(if $(FENCED),fenced::no_pod_runs_beside_a_holder_of_another_cluster_under_any_fault,simulation::the_invariants_hold_under_every_fault_of_the_network_masters_and_candidates)
simulate: ## Random faults in virtual time, on all cores: SEEDS=1000000 FIRST_SEED=0; FENCED=1 for a fenced lock; SEED=7 replays one, step by step
	$(if $(SEED),REDLOCK_SEED=$(SEED)) SEEDS=$(SEEDS) FIRST_SEED=$(FIRST_SEED) $(CARGO) test --profile simulation --package redlock-core --test core -- \
		--nocapture --exact $(if $(SEED),$(SIMULATED_SEED),--ignored $(SIMULATED))

world: WORLD = controller::world::random::random_worlds_keep_their_promises
world: ## Whole operators, API servers, masters and users in virtual time, on all cores: WORLDS=2000 FIRST_SEED=0; SEED=7 prints the story of one
	$(if $(SEED),SEED=$(SEED)) WORLDS=$(WORLDS) FIRST_SEED=$(FIRST_SEED) $(CARGO) $(OPTIMISED) test --workspace --lib -- --nocapture --exact $(WORLD)

world-planted: ## The random world that finds each planted mistake: WORLDS=2000 FIRST_SEED=0
	WORLDS=$(WORLDS) FIRST_SEED=$(FIRST_SEED) $(CARGO) $(OPTIMISED) test --workspace --lib -- --nocapture --ignored --exact controller::world::random::random_worlds_find_planted_mistakes

planted: tools ## Faults of the protocol, planted one by one: which layer of the tests finds each, and how soon
	@CARGO='$(CARGO)' scripts/planted

model: ## Node fencing within wider bounds than `make test` explores, hours; ARGS='MODEL_STEPS=40000000' for so many steps of each
	$(ARGS) $(CARGO) test --package redlock-model -- --nocapture --exact --ignored fence::exhaust::deep

# The tests of the simulation run fewer seeds: a unit test finds most changes, and the first seeds find each of the
# others.
mutants: export REDLOCK_SEEDS ?= 60
mutants: export PROPTEST_CASES ?= 64
mutants: ## Change redlock-core in one place after another and report each change that no test finds, 5 hours on two cores; ARGS='--file "**/vote.rs"' for one file
	@$(CARGO) mutants --version >/dev/null 2>&1 || { echo 'make mutants: cargo-mutants is missing; install it: cargo install --locked cargo-mutants --version 27.1.0' >&2; exit 1; }
	@mkdir -p target
	$(CARGO) mutants --package redlock-core --features trace --output target $(ARGS)

csi-sanity: ## csi-sanity of kubernetes-csi on the CSI driver of node fencing
	@CARGO='$(CARGO)' scripts/csi-sanity

node-vm: ## Node fencing on a node with cgroup v2, containerd and the kubelet in a virtual machine, 15 minutes; builds it once
	scripts/build-node-vm scripts/build-kubernetes $(CARGO) test --workspace --test kubernetes -- --ignored --nocapture --exact node_vm::a_fenced_deployment_lives_on_a_real_node

kubernetes: ## The API server of the tests, into a cache in the home directory; KUBE_VERSION=1.33.13 for another one
	scripts/build-kubernetes

##@ Long runs, on real processes

chaos: tools ## Operators and runs on five masters under every fault at once, 20 minutes; ARGS='REDLOCK_SEED=7 REDLOCK_SECONDS=120'
	$(ARGS) $(CARGO) test --test chaos -- --ignored --nocapture --exact chaos

prove-run: tools ## What `redlock run` promises, 20 trials of each failure and 400 slots, more than 12 minutes; ARGS='REDLOCK_TRIALS=3 REDLOCK_ROWS=network-cut REDLOCK_SLOTS=20'
	$(ARGS) $(CARGO) test --test prove -- --ignored --nocapture --exact every_row
	$(ARGS) $(CARGO) test --test run -- --ignored --nocapture --exact once_per::three_hosts_run_many_slots_once

soak-targets: ## Two clusters, random faults, 2 hours; ARGS='REDLOCK_TRANSITIONS=50 REDLOCK_SEED=7' for less and the same again, ARGS='REDLOCK_FAULT=CutStandby REDLOCK_FAULTS=20' for one fault
	$(ARGS) scripts/build-kubernetes $(CARGO) test --test kubernetes -- --ignored --nocapture --test-threads=1 two_clusters::soak

soak-slots: ## 500 slots in two clusters under faults, and 5 real minutes; ARGS='REDLOCK_SLOTS=50 REDLOCK_SEED=7' as well
	$(ARGS) scripts/build-kubernetes $(CARGO) test --test kubernetes -- --ignored --nocapture --test-threads=1 once_per_schedule::soak

soak-leases: ## Action Lease with client-go and kube-schedulers: 24 moves, and ten minutes on standby; ARGS='REDLOCK_MOVES=6 REDLOCK_STANDBY_SECONDS=60', ARGS=REDLOCK_UNFENCED=1 without the policy
	$(ARGS) scripts/build-kubernetes $(CARGO) test --test kubernetes -- --ignored --nocapture --test-threads=1 client_go::soak

soak-fencing: ## Node fencing in two clusters, random faults, 3 hours; ARGS='REDLOCK_FAULT=CutFromAll,KillAll REDLOCK_FAULTS=20 REDLOCK_SEED=7' for some faults, ARGS='REDLOCK_FAULT=CutFromAll REDLOCK_CUT_SECONDS=300' for long cuts, ARGS='REDLOCK_FENCING=off' for the same pods without fencing, ARGS='REDLOCK_OUTCOMES=FILE' for one table of several runs
	$(ARGS) scripts/build-kubernetes $(CARGO) test --test kubernetes -- --ignored --nocapture --exact two_clusters::fenced::soak

soak-registers: tools ## One master loses its memory beside 150 processes and 50,000 locks; ARGS='REDLOCK_PROCESSES=30 REDLOCK_LOCKS=10000'
	$(ARGS) $(CARGO) test --profile simulation --package redlock-client --test redis -- --ignored --nocapture --exact restore::many_processes_and_locks

e2e: ## Chart, image and quickstart on the cluster of KUBECONFIG, step by step; LOAD_IMAGE='kind load image-archive'
	scripts/build-kubernetes scripts/e2e

e2e-clusters: ## A Deployment over the clusters of KUBECONFIG_EU and KUBECONFIG_US, which are cut from each other
	scripts/build-kubernetes scripts/e2e-clusters

##@ Measurements

bench: tools ## Measure against the floor of bare Redis commands
	$(CARGO) bench --package redlock-bench --bench lease

bench-run: tools ## Measure redlock run against flock
	$(CARGO) bench --bench run

bench-kubernetes: tools ## Measure the operator on a real API server; ARGS=takeover for one scenario
	scripts/build-kubernetes $(CARGO) bench --bench kubernetes -- $(ARGS)

order-run: tools ## Measure which functions redlock run executes, and have the linker place them next to each other
	scripts/order-run

##@ Image and release

image: ## The image, target/image/redlock-operator.tar; BASE=machine needs no registry
	@scripts/install-buildah
	BASE=$(BASE) scripts/build-image $(ARGS)

test-image: tools ## Build the image with the Rust of this machine, and run what it must do; as root
	@scripts/install-buildah
	$(CARGO) test --test image -- --include-ignored

release-check: ## A dry run of a release: versions, changelog, packages, chart; TAG=v0.1.0 as for that tag
	CARGO='$(CARGO)' scripts/build-kubernetes scripts/release-check $(TAG)
