# Everything that one does with this repository. The recipes only call cargo and scripts/, which can be used alone too.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# A shell that has not read rustup's environment file should find cargo all the same.
export PATH := $(PATH):$(if $(CARGO_HOME),$(CARGO_HOME),$(HOME)/.cargo)/bin

FERROVIRT := target/release/ferrovirt
FUZZ_SECONDS ?= 60

.PHONY: help run stop build images test test-unit test-seeds test-suites test-api test-kubectl test-guests test-moves test-kubernetes test-all reference-up reference-down kube-up kube-down fuzz lint fmt clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name what; do printf '  make %-15s %s\n' "$$name" "$$what"; done

run: ## Build what is needed, start the local cluster in the background with a demo guest, and say how to use it
	@scripts/run.sh

stop: ## Stop the local cluster and its guests; its objects are there again after the next `make run`
	@if [ -x $(FERROVIRT) ]; then $(FERROVIRT) down; else echo "Nothing was built, so nothing runs."; fi

build: ## Install what is missing and build the release binaries, target/release/{ferrovirt,virtctl,virt-launcher}
	@scripts/setup.sh build
	cargo build --locked --release --package ferrovirt --package ferrovirt-virt-launcher --package ferrovirt-virtctl

images: ## Build the container images as OCI archives in target/images (REGISTRY=… and VERSION=… for other names)
	@images/build.sh

test: ## All tests: Rust, the API suite and kubectl on our server and on a real kube-apiserver, guests on the local cluster
	@scripts/test.sh

test-unit: ## Only the Rust tests of the workspace
	@scripts/test.sh rust

test-seeds: ## Only the thousands of simulated clusters, which the Rust tests play a part of when SIMULATION_SEEDS is small
	@scripts/test.sh seeds

test-suites: ## All but the Rust tests: the API suite and kubectl, guests, machines and moves on the local cluster
	@scripts/test.sh suites

test-api: ## Only the API suite, on our server and on a real kube-apiserver
	@scripts/test.sh api

test-kubectl: ## Only kubectl's commands, on our server and on a real kube-apiserver
	@scripts/test.sh kubectl

test-guests: ## Only real guests and machines on the local cluster, with ours and KubeVirt's virtctl, and kill -9 of everything around them
	@scripts/test.sh guests

test-moves: ## Only live migration between two nodes, with kill -9 and cut links in its middle (FERROVIRT_FAULT_MOMENTS=20 FERROVIRT_MOVES=10: all of it)
	@scripts/test.sh moves

test-kubernetes: ## An installation on a real Kubernetes with two nodes, with guests, moves, kill -9 of kubelets, and its removal (needs root)
	@scripts/test.sh kubernetes

test-all: ## Everything: all tests with 20 moments of each fault, all of test-kubernetes, and fuzzing; hours
	@FERROVIRT_FAULT_MOMENTS=20 FERROVIRT_MOVES=10 SIMULATION_PART=0/1 scripts/test.sh all
	@FERROVIRT_FAULT_MOMENTS=20 FERROVIRT_MOVES=10 scripts/test.sh kubernetes
	@$(MAKE) fuzz

reference-up: ## Build and start a real etcd, kube-apiserver and controller manager on loopback
	@scripts/setup.sh reference
	@tests/reference/build.sh
	@tests/reference/reference.sh up

reference-down: ## Stop the reference and remove its state
	@tests/reference/reference.sh down

kube-up: ## Build and start a real Kubernetes with two nodes on this machine, and print its kubeconfig (needs root)
	@tests/kubernetes/cluster.sh up

kube-down: ## Stop that Kubernetes and remove all of it but the programs
	@tests/kubernetes/cluster.sh down

fuzz: ## Every fuzz target for a minute (FUZZ_SECONDS=60); needs a nightly compiler, which is installed where it is missing
	@scripts/setup.sh build
	@fuzz/run.sh $(FUZZ_SECONDS)

lint: ## rustfmt, clippy with warnings denied, licences and sources of the dependencies
	@scripts/lint.sh

fmt: ## Format the Rust code
	cargo fmt --all

clean: ## Remove what was built here (not the cache outside the tree, nor the cluster's state)
	cargo clean
