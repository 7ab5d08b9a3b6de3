# Every target sets itself up: the virtual environment is made once and again only when pyproject.toml changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
AIMOCK := .cache/aimock/node_modules/.bin/llmock

.PHONY: demo test check lint types contracts chaos aimock bench bench-fleet clean

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

# Our client against somebody else's idea of the providers; needs node, and the network the first time.
aimock: $(READY) $(AIMOCK)
	$(BIN)/pytest -rs tests/worker/model/test_aimock.py

$(AIMOCK):
	npm install --silent --no-audit --no-fund --prefix .cache/aimock @copilotkit/aimock@1

bench: $(READY)
	$(BIN)/python benchmarks/redis_layer.py

bench-fleet: $(READY)
	$(BIN)/python benchmarks/fleet.py

clean:
	rm -rf $(VENV) .cache .postroom .bench

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[embedded,dev]'
	touch $@
