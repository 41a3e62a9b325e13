"""What one question to a model took: as the provider says, else as we count.

Owns that both are never mixed. Always holds: a question that was not answered is counted, too, for
it was sent.
"""

from __future__ import annotations

from recollect.rules.tokens import count_text
from recollect.values.model import Answer, ModelUse, Prompt


def model_use(prompt: Prompt, answer: Answer | None = None) -> ModelUse:
    """The one call of a prompt, and what it took."""
    if answer is not None and answer.usage is not None:
        read, written = answer.usage.input_tokens, answer.usage.output_tokens
    else:
        read = count_text(prompt.system) + count_text(prompt.text)
        written = 0 if answer is None else count_text(answer.text)
    return ModelUse(purpose=prompt.purpose, calls=1, input_tokens=read, output_tokens=written)


def spent_tokens(prompt: Prompt, answer: Answer | None = None) -> int:
    """Tokens of a prompt and its answer."""
    used = model_use(prompt, answer)
    return used.input_tokens + used.output_tokens
