# Every target sets itself up: the virtual environment is made once and again only when pyproject.toml changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check lint types contracts chaos bench bench-fleet bench-loop clean

demo: $(READY)
	$(BIN)/python examples/demo.py

test: $(READY)
	$(BIN)/pytest

check: lint types contracts test

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy -p postroom.mailbox -p postroom.dispatcher -p postroom.worker
	$(BIN)/mypy tests benchmarks examples

contracts: $(READY)
	$(BIN)/lint-imports

# The long versions of the tests that kill things: some five minutes.
chaos: $(READY)
	POSTROOM_CHAOS=long $(BIN)/pytest -s tests/worker

bench: $(READY)
	$(BIN)/python benchmarks/redis_layer.py

bench-loop: $(READY)
	$(BIN)/python benchmarks/loop.py

bench-fleet: $(READY)
	$(BIN)/python benchmarks/fleet.py

clean:
	rm -rf $(VENV) .postroom .bench

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[embedded,dev]'
	touch $@
