# `just` alone runs what CI runs first.

# Check lint, strict types and layering
check:
    ruff check .
    ruff format --check .
    mypy
    lint-imports

# Run every test, on two cores
test *ARGS:
    pytest -q -n 2 --dist worksteal {{ARGS}}

# Run what CI runs, in an environment of its own
ci:
    bash .ci/run

# Test 20,000 generated conversations per wire format, and 10,000 mutated requests to the gateway
soak:
    RECOLLECT_SOAK=1 pytest -q -n 2 --dist worksteal --timeout 0 tests/property/test_every_request.py tests/integration/test_gateway_mutated.py

# Send ten minutes of mixed traffic through a gateway; check for leaks and lost messages
soak-gateway *ARGS:
    python -m tools.gateway_soak {{ARGS}}

# Run 2,000 pairs of callers with similar conversations; check that a restarted gateway keeps them apart
callers *ARGS:
    python -m tools.gateway_callers {{ARGS}}

# Send generated requests to the gateway (schemathesis); no answer may be a 5xx of its own
schema-gateway *ARGS:
    python -m tools.gateway_schema {{ARGS}}

# Send generated requests to the service; every answer must match its OpenAPI document
schema-service *ARGS:
    python -m tools.service_schema {{ARGS}}

# Kill each component of a service under load, and restore its backups
service-faults *ARGS:
    python -m tools.service_faults {{ARGS}}

# Test the store's contract on a real Citus, then kill a Citus worker under load
citus *ARGS:
    python -m tools.service_faults.citus {{ARGS}}

# Put ten minutes of mixed load on two nodes and a worker; check that RAM does not grow
service-soak *ARGS:
    python -m tools.service_faults.soak {{ARGS}}

# Run sessions of 3,000 turns; check limits, losses, disk, CPU and RAM
long-session *ARGS:
    python -m tools.long_session {{ARGS}}

# Kill and stop processes and servers at full size; fail on any loss
crash *ARGS:
    python -m tools.crash {{ARGS}}

# Restart stores during 400 turns next to 8 busy processes, on SQLite and PostgreSQL
restarts *ARGS:
    python -m tools.crash --scenario restarts --store sqlite --store pg18 {{ARGS}}

# Run CI with every test at full size, then measure every figure of the docs
full:
    RECOLLECT_FULL=1 bash .ci/run
    just figures --compare
    recollect bench store --store pg18 --large --json
    just recall
    just live
    just live-real-model
    just real-model
    just real-model --gateway
    just real-model --chat
    just crash
    just soak
    just soak-gateway
    just callers
    just service-soak
    just citus
    just packages

# Test wheel and sdist in empty environments: each extra, lowest dependencies, every Python found; complete types
packages *ARGS:
    python -m tools.packages {{ARGS}}

# Set the version, build and check wheel and sdist; prints the commands that publish. --dry-run changes nothing
release *ARGS:
    python -m tools.release {{ARGS}}

# Run a real model with a window of 4,096 tokens through overflows and compactions
real-model *ARGS:
    python -m tools.real_model {{ARGS}}

# Run Claude Code, Codex, pi and opencode through the gateway, and OpenClaw with our context engine
clients *ARGS:
    python -m tools.clients {{ARGS}}

# List fields of the newest Claude Code, Codex, pi, opencode and OpenClaw that no reader knows
compatibility *ARGS:
    python -m tools.compatibility {{ARGS}}

# Run the official conformance suite of MCP against `recollect mcp --http`
conformance *ARGS:
    python -m tools.mcp_conformance {{ARGS}}

# Compare cost and recovered identifiers with plain compaction and OpenClaw
cost *ARGS:
    recollect bench cost {{ARGS}}

# Measure how long an agent waits for its hooks, with the daemon and without
hooks *ARGS:
    recollect bench hooks {{ARGS}}

# Measure every figure of the pages on benchmarks and capacity; start it again after an interruption
figures *ARGS:
    python -m tools.figures {{ARGS}}

# Measure recall: what it finds, wrong recalls, time, and equal ranking in both stores
recall:
    recollect bench recall --set locomo --set longmemeval --set beam --embedder minilm+static --json
    recollect bench recall --set locomo --embedder minilm --json
    recollect bench recall --set locomo --set longmemeval --set beam --embedder static --json
    recollect bench recall --set locomo --set memdaily --embedder hash --json
    recollect bench recall --set madial --embedder static --json
    recollect bench recall --compare sqlite,pg18 --set locomo --set longmemeval --set beam --set madial --set memdaily --embedder minilm+static --json
    recollect bench turn --recall --json

# Measure which evidence is in the request when a user asks, turn by turn
live:
    recollect bench live --set agent --half held-out --embedder static --json
    recollect bench live --set agent --half held-out --embedder none --window 16k --statements 0 --json
    recollect bench live --set agent --half held-out --embedder minilm --window 16k --statements 0 --json
    recollect bench live --set locomo --embedder minilm --most-questions 300 --json
    recollect bench live --set locomo --embedder static --window 8k --window 16k --most-questions 300 --json
    recollect bench live --set beam --embedder minilm --json
    recollect bench live --set coding --json
    recollect bench live --set agent --half held-out --embedder static --summaries none --statements 0 --json
    recollect bench live --set locomo --embedder static --summaries none --most-questions 300 --strategy recollect --json

# Measure the same with summaries of a real model (SmolLM2 by llama.cpp); takes hours on two cores
live-real-model:
    recollect bench live --set agent --half held-out --window 16k --summaries model --statements 0 --strategy recollect --strategy recall-off --json

# Write the generated pages, then build the site in site/ (pip install --group docs)
docs:
    python -m tools.reference
    zensical build --strict
    python -m tools.reference --full site/llms-full.txt

# Draw the pictures of chat, receipt and explain in a real terminal, with a scripted model
chat-picture:
    python -m tools.chat_picture docs/images
