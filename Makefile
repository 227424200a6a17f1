# make          lists what there is
# make demo     is the place to start

GO ?= go
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.1

# A model of yours for the demo, and what to ask it.
MODEL ?=
PROMPT ?= What is gravity?
# Which benchmarks, and how often: make bench BENCH=GEMM COUNT=6
BENCH ?= .
COUNT ?= 1
# Rounds of bench-peer, turns of each test in a round, models, which scripts/peer/run.sh lists, and
# npukit's kernels there, the fastest unless told.
ROUNDS ?= 5
REPS ?= 1
PEER ?=
KERNELS ?=
# How long each fuzz test of test-long looks for new inputs: a time, or a number of executions such as 1000000x.
FUZZTIME ?= 30s
# More flags for the go test of make test: make test TESTFLAGS=-v
TESTFLAGS ?=
# Where deploy-report keeps its deployments, and goes on with them: a folder that is not there begins afresh.
DEPLOYMENTS ?= $(or $(TMPDIR),/tmp)/npukit-deployments
export MODEL PROMPT

.DEFAULT_GOAL := help
.PHONY: help demo build test test-kernels test-xrt test-sanitize test-arm64 test-long lint bench bench-peer
.PHONY: doc-figures sim-report deploy-report xrt-report clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## ask SmolLM2-135M-Instruct a question (fetched once); MODEL=path takes yours, PROMPT="..." asks something else
	@set -e; model=$$MODEL; \
	if [ -z "$$model" ]; then model=$$(sh scripts/fetch-smollm2.sh); fi; \
	[ -x bin/npukit ] || echo "building npukit; the first build compiles the C kernels" >&2; \
	began=$$(date +%s); \
	$(MAKE) --no-print-directory build; \
	took=$$(($$(date +%s) - began)); \
	[ $$took -lt 3 ] || echo "built in $$took s" >&2; \
	exec bin/npukit run "$$model" "$$PROMPT"

build: ## build the command, bin/npukit
	$(GO) build -o bin/npukit ./cmd/npukit

test: ## run the tests (a few minutes); the demo model is fetched for those that use it
	@sh scripts/fetch-smollm2.sh >/dev/null || echo "make test: without the demo model, the tests that use it skip"
	$(GO) test -timeout 15m $(TESTFLAGS) ./...
	@sh scripts/test-hftokenizers.sh
	@$(MAKE) --no-print-directory test-xrt

test-xrt: ## run the tests of the XRT binding on an emulated NPU, with Debian sid's XRT in the cache (15 MB, once)
	@sh scripts/xrt/test.sh

test-kernels: ## run numeric tests with each set of CPU kernels that this machine can execute
	@sh scripts/kernels.sh

test-sanitize: ## run the C kernels under AddressSanitizer and UndefinedBehaviorSanitizer, AMX emulated
	@sh scripts/sanitize.sh

test-arm64: ## run the short tests of the kernels' numbers for arm64 on qemu-user (minutes)
	@sh scripts/arm64.sh

test-long: ## run all tests under the race detector, fuzz tests for FUZZTIME, deploy-report (hours)
	@sh scripts/fetch-smollm2.sh >/dev/null || echo "make test-long: without the demo model, the tests that use it skip"
	NPUKIT_LONG=1 $(GO) test -race -count=1 -timeout 60m ./...
	NPUKIT_LONG=1 NPUKIT_TIMEOUT=60m sh scripts/xrt/test.sh -count=1
	@sh scripts/fuzz.sh $(FUZZTIME)
	@$(MAKE) --no-print-directory deploy-report

lint: ## check formatting, go vet, staticcheck, the bounds of the structure and the words of comments
	@files=$$(gofmt -l .); [ -z "$$files" ] || { echo "gofmt -w needed:"; echo "$$files"; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	$(GO) run ./scripts/structure
	$(GO) run ./scripts/words -check
	$(GO) vet -tags hftokenizers ./model/tokenizer/...
	$(GO) run $(STATICCHECK) -tags hftokenizers ./model/tokenizer/...
	@sh scripts/xrt/lint.sh $(STATICCHECK)

bench: ## run the benchmarks of the kernels (BENCH=regexp, COUNT=n)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) -timeout 60m ./npu/...

bench-peer: build ## measure npukit beside llama.cpp (ROUNDS=5 REPS=1 PEER="135m-bf16"); builds llama.cpp once
	@KERNELS='$(KERNELS)' REPS='$(REPS)' sh scripts/peer/run.sh bin/npukit $(ROUNDS) $(PEER)

doc-figures: ## draw the figures of docs/npu.md, deploy.md and numerics.md (two minutes)
	@sh scripts/fetch-smollm2.sh >/dev/null
	$(GO) run ./internal/docfigures -out docs

sim-report: ## compare the virtual NPU's predictions with published figures: docs/sim-report.md
	$(GO) run ./internal/simreport -out docs

deploy-report: ## deploy SmolLM2 and the nine published shapes, write docs/deployments.md (hours, resumes)
	@sh scripts/fetch-smollm2.sh >/dev/null || \
		echo "make deploy-report: without the demo model, its deployments are left out"
	$(GO) run ./internal/deployreport -work "$(DEPLOYMENTS)" -out docs

xrt-report: ## run whole models through XRT on the emulated NPU, and write down which passed: docs/xrt-report.md
	NPUKIT_LONG=1 NPUKIT_TIMEOUT=60m NPUKIT_REPORT="$$PWD/docs/xrt-report.md" \
		sh scripts/xrt/test.sh -count=1 -v -run OnTheDevice

clean: ## delete what the build made; the fetched models stay in the cache
	rm -rf bin
