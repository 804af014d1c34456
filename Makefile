# Each target works alone on a fresh machine: it installs what it needs into .venv and does its job.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SERVER := server/.venv
PACKAGES := $(VENV)/.packages
STAMP := $(VENV)/.installed
CORE := $(shell find bindings/native bindings/schema -type f \( -path '*/src/*' -o -path '*/include/*' -o -path '*/third_party/*' -o -name '*.cmake' -o -path 'bindings/schema/*' \)) bindings/native/CMakeLists.txt
# Two processes share the cores; torch's own threads would only wait for each other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest

.PHONY: install demo demo-quick federation-demo check test test-all test-apple test-kotlin test-swift test-server llama bench lint schema wheel clean

install: $(STAMP)

$(PACKAGES): pyproject.toml constraints.txt tools/install_system.sh tests/example_plugin/pyproject.toml
	sh tools/install_system.sh
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --config-settings wheel.cmake=false --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps --editable tests/example_plugin
	$(BIN)/python -m pip install --quiet --no-deps --constraint constraints.txt trl  # its chat templates are read, and two functions of its SimPO loss
	touch $(PACKAGES)

# The device core, against the executorch that is installed now; when its sources are newer, only what has changed is compiled.
$(STAMP): $(PACKAGES) $(CORE) tools/bespoke_build.py
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python sample_apps/desktop/demo.py

# Six facts without rehearsal: each part of the demo runs, in a fifth of the time.
demo-quick: $(STAMP)
	$(BIN)/python sample_apps/desktop/demo.py --quick

test: $(STAMP) lint
	$(PYTEST) -n 2 --dist loadgroup -m 'not slow and not benchmark and not kotlin and not apple and not swift'

test-all: $(STAMP) lint
	BESPOKE_FULL=1 $(PYTEST) -n 2 --dist loadgroup -m 'not benchmark and not kotlin and not swift'  # full counts, written to docs/reference/checks.md

# All languages, the server and the short demo: what CI runs.
check:
	@sh tools/check.sh install test+test-server+test-kotlin+test-swift+test-apple+demo-quick

# The Kotlin binding and the Android libraries on a JVM, with the server of a federation. BESPOKE_FULL=1: with full counts.
test-kotlin: $(STAMP) $(SERVER)/.installed
	sh tools/install_kotlin.sh
	BESPOKE_REQUIRE_KOTLIN=1 $(PYTEST) -m '$(if $(BESPOKE_FULL),kotlin,kotlin and not slow)' tests/kotlin

# The Swift binding, on Linux. BESPOKE_FULL=1: with full counts. Skipped where a machine does not let a toolchain run.
test-swift: $(STAMP)
	sh tools/install_swift.sh
	$(PYTEST) -m '$(if $(BESPOKE_FULL),swift,swift and not slow)' tests/swift

# The targets for Apple's devices, on this machine: one graph of each shape, one trace. BESPOKE_FULL=1: with full counts.
test-apple: $(STAMP)
	$(PYTEST) -m '$(if $(BESPOKE_FULL),apple,apple and not slow)' tests/apple

# The server of a federation, in an environment of its own: no torch, no core. BESPOKE_FULL=1: with full counts.
$(SERVER)/.installed: server/requirements.lock server/pyproject.toml pyproject.toml
	$(PYTHON) -m venv $(SERVER)
	$(SERVER)/bin/python -m pip install --quiet --upgrade pip
	$(SERVER)/bin/python -m pip install --quiet --no-compile --requirement server/requirements.lock  # what is imported is compiled then
	$(SERVER)/bin/python -m pip install --quiet --no-deps --config-settings wheel.cmake=false --editable .
	$(SERVER)/bin/python -m pip install --quiet --no-deps --editable server
	touch $(SERVER)/.installed

test-server: $(SERVER)/.installed
	cd server && .venv/bin/python -m pytest

# A cloud on Flower, an edge and three devices, in processes of their own.
federation-demo: $(STAMP) $(SERVER)/.installed
	$(BIN)/python server/demo.py

# llama.cpp compiled for this processor, which the benchmark of answers compares with, and for AVX2: some twenty minutes on two cores.
# Without AMX: on virtual machines that have it, llama.cpp's path for it ends with an illegal instruction.
LLAMA := 'llama-cpp-python>=0.3.36,<0.4'
NO_AMX := -mno-amx-tile -mno-amx-int8 -mno-amx-bf16
llama: $(STAMP)
	CMAKE_ARGS="-DCMAKE_C_FLAGS='$(NO_AMX)' -DCMAKE_CXX_FLAGS='$(NO_AMX)'" \
	  $(BIN)/python -m pip install --quiet --constraint constraints.txt --no-binary llama-cpp-python $(LLAMA)
	CMAKE_ARGS=-DGGML_NATIVE=OFF $(BIN)/python -m pip install --quiet --no-deps --constraint constraints.txt \
	  --no-cache-dir --no-binary llama-cpp-python --upgrade --target .cache/llama_avx2 $(LLAMA)

bench: $(STAMP)
	$(BIN)/python -m pytest -m benchmark -s tests/benchmarks

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/python tools/format_native.py --check
	$(BIN)/python tools/tidy_native.py
	$(BIN)/mypy
	$(BIN)/python tools/check_layers.py

schema: $(STAMP)
	$(BIN)/python tools/write_schemas.py
	$(BIN)/python tools/builder_table.py

# dist/*.whl, for machines without a compiler: the core and every library that it loads are in it.
wheel: $(STAMP)
	$(BIN)/python tools/make_wheel.py dist

clean:
	rm -rf $(VENV) $(SERVER) .cache
