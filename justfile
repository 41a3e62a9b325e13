# `just` alone runs what CI runs first.

# Lint, strict types, layering
check:
    ruff check .
    ruff format --check .
    mypy
    lint-imports

# Every test, on two cores
test *ARGS:
    pytest -q -n 2 --dist worksteal {{ARGS}}

# Everything CI does, in an environment of its own
ci:
    bash .ci/run

# 20,000 generated conversations a wire format instead of 2,000
soak:
    RECOLLECT_SOAK=1 pytest -q -n 2 --dist worksteal tests/property/test_every_request.py

# Processes and servers killed, stopped and taken away at full size; non-zero on any loss
crash *ARGS:
    python -m recollect.testing.crash {{ARGS}}

# Every must-show of the issue, with its figures
full:
    bash .ci/run
    recollect bench turn --json
    recollect bench redaction --json
    recollect bench tokens --json
    recollect bench store --store sqlite: --json
    recollect bench store --store pg18 --large --spaces 20000 --json
    just crash
    just soak

# The pages and the picture that are generated from code
docs:
    python -m recollect.config.page > docs/settings.md
    recollect explain "${RECOLLECT_DATA:-../shared/data}/transcripts/pi_before-compaction.jsonl.gz" --window 128k --svg docs/images/explain.svg

# Measure, and write docs/figures.md
figures:
    python -m recollect.bench.figures > docs/figures.md
