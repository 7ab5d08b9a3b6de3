# Every target sets itself up: the virtual environment is made once and again only when pyproject.toml changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
AIMOCK := .cache/aimock/node_modules/.bin/llmock

# The RQ that pyproject.toml claims to work with: the oldest, and the newest there is.
RQ ?= $(shell sed -n 's/.*"rq>=\([0-9.]*\).*/\1/p' pyproject.toml) newest
RQ_HOMES := .rq-versions

.PHONY: demo test check lint types contracts chaos rq-versions rq-dashboard aimock bench bench-fleet bench-loop bench-relay clean

demo: $(READY)
	$(BIN)/python examples/demo.py

# Most tests wait for processes rather than compute, so two at a time take little more than half as long.
test: $(READY)
	$(BIN)/pytest -n 2 --dist loadfile

check: lint types contracts test

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy -p postroom.mailbox -p postroom.dispatcher -p postroom.worker
	$(BIN)/mypy tests benchmarks examples

contracts: $(READY)
	$(BIN)/lint-imports

# The long versions of the tests that kill things: about a quarter of an hour.
chaos: $(READY)
	POSTROOM_CHAOS=long $(BIN)/pytest -s tests/worker

# What RQ promises, held against several versions of it, each in an environment of its own: make rq-versions RQ="2.10 2.11"
rq-versions: $(RQ:%=$(RQ_HOMES)/%/.ready)
	for version in $(RQ); do \
	  $(RQ_HOMES)/$$version/bin/pip list --disable-pip-version-check 2>/dev/null | grep '^rq ' && \
	  $(RQ_HOMES)/$$version/bin/pytest tests/worker/test_rq_contract.py tests/worker/test_rq.py tests/worker/test_dashboard.py \
	    || exit 1; \
	done

# The view that rq-dashboard has of a fleet; it brings a web framework along, so it stays out of the other environments.
rq-dashboard: $(RQ_HOMES)/dashboard/.ready
	$(RQ_HOMES)/dashboard/bin/pytest tests/worker/test_dashboard.py

# Our client against somebody else's idea of the providers; needs node, and the network the first time.
aimock: $(READY) $(AIMOCK)
	$(BIN)/pytest -rs tests/worker/model/test_aimock.py

$(AIMOCK):
	npm install --silent --no-audit --no-fund --prefix .cache/aimock @copilotkit/aimock@1

bench: $(READY)
	$(BIN)/python benchmarks/redis_layer.py

bench-relay: $(READY)
	$(BIN)/python benchmarks/relay.py

bench-loop: $(READY)
	$(BIN)/python benchmarks/loop.py

bench-fleet: $(READY)
	$(BIN)/python benchmarks/fleet.py

clean:
	rm -rf $(VENV) .postroom .bench .cache $(RQ_HOMES)

$(RQ_HOMES)/dashboard/.ready: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check --editable '.[embedded,dev,dashboard]'
	touch $@

# Our own claim is not to stand in the way of trying another version, so that one is installed last and by itself.
$(RQ_HOMES)/%/.ready: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check --editable '.[embedded,dev]'
	$(@D)/bin/pip install --quiet --disable-pip-version-check --upgrade $(if $(filter newest,$*),rq,rq==$*)
	touch $@

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[embedded,dev]'
	touch $@
