# The verbs of cfgraph. Each works alone on a fresh clone: it makes .venv first.
PYTHON ?= python3
BIN := .venv/bin
# what a verb installs unless EXTRAS says otherwise
BENCH := test,interop
GPU := test,gpu,gpu-xla
DOCS := test,docs
# of `make fuzz`, which continues its log; a nightly job takes the date as seed and a million inputs
FUZZ_SEED ?= 0
FUZZ_COUNT ?= 100000
FUZZ_LOG ?= fuzz.jsonl
# of `make agree`, which continues its log, too
AGREE_SEED ?= 0
AGREE_COUNT ?= 10000
AGREE_LOG ?= agree.jsonl

# of `make test`: a backend or an integration, whose tests it runs instead of the core's
RANK ?=

.PHONY: help demo test sweep fuzz agree lint generate docs bench gpu format clean
.NOTPARALLEL:
# where it is set, each process that a test starts compiles all of cfgraph again
unexport PYTHONDONTWRITEBYTECODE

help:
	@echo 'make demo    a tour: a dead value, a converter, a loop, devices, and a page'
	@echo 'make test    run the tests of the core, and the smallest of backends and integrations'
	@echo '             (with RANK=xla, for instance, all of that one)'
	@echo 'make sweep   run the long tests that make test leaves out'
	@echo 'make fuzz    run FUZZ_COUNT mutated inputs through all commands'
	@echo 'make agree   run AGREE_COUNT random programs in TensorFlow and cfgraph'
	@echo 'make lint    ruff, mypy, and the budgets of lines'
	@echo 'make generate update the generated files'
	@echo 'make docs    build the documentation site in build/site'
	@echo 'make bench   measure, side by side with TensorFlow'
	@echo 'make gpu     run the tests that need a GPU, and measure it'
	@echo 'make format  format the code'
	@echo 'EXTRAS=test,interop,xla makes any of them install these extras'

demo: .venv/ready-$(or $(EXTRAS),plain)
	rm -rf build/demo
	$(BIN)/python docs/demo.py build/demo $(if $(findstring interop,$(EXTRAS)),tensorflow)

test: .venv/ready-$(or $(EXTRAS),test)
	$(BIN)/python -m pytest -n 2 --dist worksteal $(if $(RANK),-m $(RANK),--core) $(PYTEST_ARGS)

sweep: .venv/ready-$(or $(EXTRAS),test)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow $(PYTEST_ARGS)

fuzz: .venv/ready-$(or $(EXTRAS),test)
	$(BIN)/python -m tests.robustness.fuzz --seed $(FUZZ_SEED) --count $(FUZZ_COUNT) --log $(FUZZ_LOG)

agree: .venv/ready-$(or $(EXTRAS),$(BENCH))
	$(BIN)/python -m tests.conformance.agree --seed $(AGREE_SEED) --count $(AGREE_COUNT) --log $(AGREE_LOG)

lint: .venv/ready-$(or $(EXTRAS),test)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tests/measures.py --check

# what is generated and kept in git: indexes, man pages, schemas, and pages
INDEXES := tests/test_extension_index.py tests/ops/test_op_index.py
GENERATED := tests/cli/test_schemas.py tests/ops/test_declared_ops.py tests/test_man_pages.py \
	tests/cli/test_configuration_schema.py tests/cli/test_configuration.py tests/test_ops_page.py \
	tests/test_address.py tests/test_api_page.py

generate: .venv/ready-$(or $(EXTRAS),test)
	$(BIN)/python -m pytest -q --update $(INDEXES)
	$(BIN)/python -m pytest -q --update $(GENERATED)

docs: .venv/ready-$(or $(EXTRAS),$(DOCS))
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo 'The site is build/site; to read it: $(BIN)/python -m http.server -d build/site'

bench: .venv/ready-$(or $(EXTRAS),$(BENCH))
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

gpu: .venv/ready-$(or $(EXTRAS),$(GPU))
	CUDA_VISIBLE_DEVICES=$${CUDA_VISIBLE_DEVICES-0} $(BIN)/python -m pytest -m 'card and not slow' $(PYTEST_ARGS)
	$(BIN)/python -m benchmarks.gpu $(BENCH_ARGS)

format: .venv/ready-$(or $(EXTRAS),test)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv build *.egg-info

# one stamp for each set of extras; `plain` is no extra at all
.venv/ready-%: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.$(if $(filter plain,$*),,[$*])'
	touch $@
