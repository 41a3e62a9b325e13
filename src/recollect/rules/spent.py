"""What one question to a model took: as the provider says, else as we count.

Owns that both are never mixed. Always holds: a question that was not answered is counted, too, for
it was sent.
"""

from __future__ import annotations

from recollect.rules.tokens import count_text
from recollect.values.model import Answer, Prompt


def spent_tokens(prompt: Prompt, answer: Answer | None = None) -> int:
    """Tokens of a prompt and its answer."""
    if answer is not None and answer.usage is not None:
        return answer.usage.input_tokens + answer.usage.output_tokens
    said = "" if answer is None else answer.text
    return sum(map(count_text, (prompt.system, prompt.text, said)))
