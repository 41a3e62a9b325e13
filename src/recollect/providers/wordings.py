"""What providers say: the one table of overflow messages, what only sounds like them, and more.

Owns wordings and where their numbers stand, nothing else; `overflow.py` reads them. Rows must
never hold an open gap (`.*`): what is matched comes from outside. What always holds: patterns
ignore case, and a known HTTP status stands at the start of the text they are matched against.

The wordings are literals of the providers' protocols (docs/sources.md); a provider is named
where the wording is its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Wording(NamedTuple):
    """One row: its name in reports, whose wording it is, and the regular expression."""

    name: str
    provider: str | None
    pattern: str


_N: Final = r"\d[\d,]{0,14}"
_NOT_TOKENS: Final = r"(?![\d,])(?!\s*(?:bytes?|[kmg]i?b|char|tool|image|file|page|message))"

# The first row that matches names the overflow: the particular wordings stand before the general.
OVERFLOW_WORDINGS: Final[tuple[Wording, ...]] = (
    Wording("prompt_too_long", "anthropic", r"prompt is too long"),
    Wording("input_and_reply_over_limit", "anthropic", r"exceed context limit"),
    Wording("request_too_large", "anthropic", r"request_too_large"),
    # an error code of some, a stop reason of Anthropic
    Wording("model_window_exceeded", None, r"model_context_window_exceeded"),
    Wording(
        "validation_input_tokens",
        "bedrock",
        r"ValidationException.{0,200}?"
        r"(?:input is too long|max input token|input token.{0,80}?exceed)",
    ),
    Wording("input_too_long_for_model", "bedrock", r"input is too long for requested model"),
    # counts characters
    Wording("input_over_max_length", "bedrock", r"expected maxLength:"),
    Wording("input_token_count", "google", r"input token count.{0,80}?exceeds the maximum"),
    Wording(
        "input_count_supported", "google", rf"input token count is {_N} but (?:the )?model only"
    ),
    # counts bytes
    Wording("payload_size", "google", r"request payload size exceeds"),
    Wording("maximum_prompt_length", "xai", rf"maximum prompt length is {_N}"),
    Wording("input_exceeds_window", "openai", r"exceeds the context window"),
    Wording("configured_limit", "openai", r"input tokens exceed the configured limit"),
    Wording("current_length", "cerebras", r"current length is .{1,40}? while limit is"),
    Wording("output_requested", "vllm", rf"requested {_N} output tokens"),
    Wording("input_contained", "vllm", rf"prompt contains.{{0,40}}?{_N} input tokens"),
    Wording("total_requested", "vllm", rf"for a total of.{{0,40}}?{_N} tokens"),
    # OpenAI, DeepSeek, OpenRouter, Azure and most that imitate them
    Wording("maximum_context_is", None, rf"maximum context length is {_N} tokens"),
    Wording(
        "over_maximum_context",
        None,
        r"exceeds (?:the )?(?:model'?s )?maximum context length"
        rf"(?: of {_N} tokens?|\s*\({_N}\))",
    ),
    Wording(
        "over_allowed_input",
        None,
        rf"exceeds (?:the )?maximum allowed input length of {_N} tokens?",
    ),
    Wording(
        "longer_than_context", None, rf"input \({_N} tokens\) is longer than the model'?s context"
    ),
    Wording("available_context_size", "llama.cpp", r"exceeds the available context size"),
    Wording("context_size_type", "llama.cpp", r"exceed_context_size_error"),
    Wording("greater_than_context", "lm-studio", r"greater than the context length"),
    Wording("loaded_context", "lm-studio", rf"loaded with (?:a )?context length of only {_N}"),
    Wording("window_exceeds_limit", "minimax", r"context window exceeds limit"),
    Wording("model_token_limit", "moonshot", r"exceeded model token limit"),
    Wording("too_large_for_model", "mistral", rf"too large for model with {_N} maximum context"),
    Wording("exceeded_max_context", "ollama", r"prompt too long; exceeded (?:max )?context length"),
    Wording("inputs_and_new_tokens", "huggingface", r"`inputs` tokens \+ `max_new_tokens` must be"),
    Wording("reduce_messages", "groq", r"reduce the length of the messages"),
    Wording("out_of_room", "codex", r"ran out of room"),
    Wording("over_the_limit", "copilot", rf"exceeds the limit of {_N}{_NOT_TOKENS}"),
    # OpenAI's error code, which Codex finds in `response.failed`; others print it with spaces
    Wording("context_length_code", None, r"context[_ ]length[_ ]exceeded"),
    Wording("context_window_code", None, r"context[_ ]?window[_ ]?exceeded"),
    Wording("chinese", None, r"上下文过长|上下文超出|上下文长度超|超出最大上下文|请压缩上下文"),
    Wording("prompt_length", None, r"prompt: length"),
    Wording("too_many_tokens", None, r"too many tokens"),
    Wording("token_limit", None, r"token limit exceeded"),
    Wording("length_limit", None, r"length limit exceeded"),
    Wording("payload_too_large", None, r"\b413\b.{0,200}?too large"),
    Wording("no_body", None, r"^4(?:00|13)\s*(?:status code)?\s*\(no body\)"),
)

# What sounds like an overflow and is none: shrinking the request would not help.
NOT_OVERFLOW_WORDINGS: Final[tuple[Wording, ...]] = (
    Wording("rate_limit", None, r"rate[ _-]?limit|too many requests|^429\b"),
    Wording(
        "throttling",
        None,
        r"^(?:\d{3} )?(?:throttling error|service unavailable):|ThrottlingException"
        r"|too many tokens, please wait",
    ),
    Wording("tokens_per_minute", None, r"\bTP[MD]\b|tokens[ _]per[ _](?:min(?:ute)?|hour|day)\b"),
    Wording(
        "billing",
        None,
        r"^402\b|\bbilling\b|credit balance|more credits|exceeded your current quota"
        r"|insufficient[_ ](?:quota|credits?|balance|funds)|payment required",
    ),
    # one string of the request, whatever the window
    Wording(
        "string_too_long", "openai", r"string_above_max_length|string too long\. expected a string"
    ),
    # a host refusing a model, not a model refusing a request
    Wording("window_too_small", None, r"context window.{0,80}?(?:too small|minimum is)"),
    Wording(
        "count_of_something_else",
        None,
        r"\b(?:tools|functions|images|files|pages|attachments)\b.{0,40}?exceeds the limit of",
    ),
)

# Format errors: the same request fails the same way again, so it is repaired, never retried.
PAIRING_WORDINGS: Final[tuple[Wording, ...]] = (
    Wording(
        "call_without_result",
        "anthropic",
        r"`tool_use` ids were found without `tool_result` blocks",
    ),
    Wording(
        "result_without_call",
        "anthropic",
        r"unexpected `tool_use_id` found in `tool_result` blocks",
    ),
    Wording("results_missing", "anthropic", r"did not find \d+ `?tool_result`? block"),
    Wording(
        "call_without_tool_message",
        "openai",
        r"'tool_calls' must be followed by tool messages"
        r"|tool_call_ids did not have response messages",
    ),
    Wording(
        "tool_message_without_call",
        "openai",
        r"messages with role 'tool' must be a response to a prece+ding message with 'tool_calls'",
    ),
    Wording("call_without_output", "openai", r"no tool output found for (?:\w+ ){1,3}call"),
    Wording("output_without_call", "openai", r"no tool call found for (?:\w+ ){1,3}call output"),
    Wording("missing_thought_signature", "google", r"missing a `?thought_signature`?"),
    Wording(
        "unequal_function_parts",
        "google",
        r"function response parts is equal to the number of function call parts",
    ),
    Wording(
        "function_call_displaced", "google", r"function call turn comes immediately after a user"
    ),
    Wording("call_without_result_block", "bedrock", r"expected toolResult blocks at messages"),
    Wording(
        "result_block_without_call",
        "bedrock",
        r"toolResult blocks at .{1,40}? exceeds the number of toolUse blocks",
    ),
)

# Where the numbers stand. For each kind the first pattern that matches counts.
COUNT_PATTERNS: Final[Mapping[str, tuple[str, ...]]] = {
    "limit": (
        rf"tokens > ({_N}) maximum",
        rf"{_N} \+ {_N} > ({_N})",
        rf"maximum (?:context|prompt) length(?: is| of)? \(?({_N})",
        rf"with ({_N}) maximum context length",
        rf"maximum number of tokens allowed \(({_N})\)",
        rf"context (?:size|length) \(({_N}) tokens",
        rf"context length of only ({_N}) tokens",
        rf"maximum allowed input length of ({_N}) tokens",
        rf"(?:configured|exceeds the) limit of ({_N}){_NOT_TOKENS}",
        rf"while limit is ({_N})",
        rf"model only supports up to ({_N})",
        rf"`max_new_tokens` must be <= ({_N})",
        rf"exceeded model token limit: ({_N})",
        rf"tokens in the prompt cannot exceed ({_N})",
        rf"\bn_ctx['\"]?: ?({_N})",
    ),
    "requested": (
        rf"prompt is too long: ({_N}) tokens",
        rf"resulted in (?:about )?({_N}) tokens",
        rf"requested (?:about )?({_N}) tokens",
        rf"\(requested: ({_N})\)",
        rf"for a total of (?:at least )?({_N}) tokens",
        rf"(?:request|input|prompt) \(({_N}) tokens\)",
        rf"token count (?:of |is |\()({_N})",
        rf"(?:request|prompt) contains (?:at least )?({_N}) tokens",
        rf"input length:? \(?({_N})",
        rf"current length is ({_N})",
        rf"- received ({_N})",
        rf"keep the first ({_N}) tokens",
        rf"\bn_keep: ?({_N})",
        rf"\bn_prompt_tokens['\"]?: ?({_N})",
    ),
    "input": (
        rf"({_N}) \+ {_N} > {_N}",
        rf"prompt contains (?:at least )?({_N}) input tokens",
        rf"given: ({_N}) `inputs` tokens",
    ),
    "output": (
        rf"{_N} \+ ({_N}) > {_N}",
        rf"requested ({_N}) output tokens",
        rf"({_N}) in the (?:completion|output)\b",
        rf"({_N}) `max_new_tokens`",
    ),
}
