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

# 20,000 generated conversations a wire format instead of 300, 10,000 mutated requests to the gateway
soak:
    RECOLLECT_SOAK=1 pytest -q -n 2 --dist worksteal --timeout 0 tests/property/test_every_request.py tests/integration/test_gateway_mutated.py

# Ten minutes of mixed traffic through a gateway: nothing leaks, nothing acknowledged is lost
soak-gateway *ARGS:
    python -m tools.gateway_soak {{ARGS}}

# 2,000 pairs of callers whose conversations begin alike, through a gateway that is restarted: nobody reads another's words
callers *ARGS:
    python -m tools.gateway_callers {{ARGS}}

# Requests that schemathesis makes from a description of the gateway's routes: no 5xx of its making
schema-gateway *ARGS:
    python -m tools.gateway_schema {{ARGS}}

# The same of the service's OpenAPI document: no 500, and every answer as the document says
schema-service *ARGS:
    python -m tools.service_schema {{ARGS}}

# Nodes under load while PostgreSQL, a replica's primary, a node, the worker or PgBouncer is killed; and its backup
service-faults *ARGS:
    python -m tools.service_faults {{ARGS}}

# A real Citus: the store's contract, then a worker of Citus killed under load; only its spaces may fail
citus *ARGS:
    python -m tools.service_faults.citus {{ARGS}}

# Ten minutes of mixed load on two nodes and a worker: memory stays flat; then an idle node does not grow
service-soak *ARGS:
    python -m tools.service_faults.soak {{ARGS}}

# Sessions of 3,000 turns at 16k and 64k: nothing over the limit or lost, and bounds on disk, CPU and memory
long-session *ARGS:
    python -m tools.long_session {{ARGS}}

# Processes and servers killed, stopped and taken away at full size; non-zero on any loss
crash *ARGS:
    python -m tools.crash {{ARGS}}

# Three restarts and 400 turns without a pause beside 8 busy processes, on SQLite and PostgreSQL
restarts *ARGS:
    python -m tools.crash --scenario restarts --store sqlite --store pg18 {{ARGS}}

# CI with every test at its full size, then every figure of the docs
full:
    RECOLLECT_FULL=1 bash .ci/run
    recollect bench turn --json
    recollect bench redaction --json
    recollect bench tokens --json
    recollect bench store --store sqlite: --json
    recollect bench store --store pg18 --large --spaces 20000 --json
    recollect bench scale --json
    just recall
    just live
    just live-real-model
    just cost --json
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

# Wheel and sdist in empty environments: each extra, lowest dependencies, every Python found; complete types
packages *ARGS:
    python -m tools.packages {{ARGS}}

# Set the version, build and check wheel and sdist; prints the commands that publish. --dry-run changes nothing
release *ARGS:
    python -m tools.release {{ARGS}}

# A real model at a 4,096-token window: 30,000 tokens through real overflows and compactions
real-model *ARGS:
    python -m tools.real_model {{ARGS}}

# Claude Code, Codex, pi and opencode themselves through the gateway, and OpenClaw with our context engine
clients *ARGS:
    python -m tools.clients {{ARGS}}

# The newest Claude Code, Codex, pi, opencode and OpenClaw: what of theirs does no reader of ours know?
compatibility *ARGS:
    python -m tools.compatibility {{ARGS}}

# The official conformance suite of MCP against `recollect mcp --http`
conformance *ARGS:
    python -m tools.mcp_conformance {{ARGS}}

# What strategies cost under prompt caching and what they keep, beside plain compaction and OpenClaw
cost *ARGS:
    recollect bench cost {{ARGS}}

# What an agent waits for its hooks, with the daemon and without
hooks *ARGS:
    recollect bench hooks {{ARGS}}

# What one machine serves, and what a fleet needs: docs/operations/capacity.md with its figures and pictures; about 15 minutes
scale *ARGS:
    recollect bench scale --write docs {{ARGS}}

# What recall finds, what it recalls for nothing, what it costs, and that both stores rank alike
recall:
    recollect bench recall --set locomo --set longmemeval --set beam --embedder minilm+static --json
    recollect bench recall --set locomo --embedder minilm --json
    recollect bench recall --set locomo --set longmemeval --set beam --embedder static --json
    recollect bench recall --set locomo --set memdaily --embedder hash --json
    recollect bench recall --set madial --embedder static --json
    recollect bench recall --compare sqlite,pg18 --set locomo --set longmemeval --set beam --set madial --set memdaily --embedder minilm+static --json
    recollect bench turn --recall --json

# What stands in the request when a user asks: tool agents, chats and coding sessions fed turn by turn
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

# The same with a real model that summarises (SmolLM2 by llama.cpp): hours on two cores
live-real-model:
    recollect bench live --set agent --half held-out --window 16k --summaries model --statements 0 --strategy recollect --strategy recall-off --json

# The charts of the docs, from the figures that are committed next to them
charts:
    python -m recollect_bench.charts docs

# The pages that are generated from code, then the site in site/ (pip install --group docs)
docs:
    python -m tools.reference
    zensical build --strict
    python -m tools.reference --full site/llms-full.txt

# The pictures of chat, receipt and explain: driven in a real terminal, with a scripted model
chat-picture:
    python -m tools.chat_picture docs/images
