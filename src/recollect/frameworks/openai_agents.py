"""The OpenAI Agents SDK: a session whose requests a memory prepares.

session = RecollectSession("my-session", memory) await Runner.run(agent, "Hello", session=session,
run_config=session.run_config())

The SDK reads the whole history from a session and adds the items of each turn. Before every model
call, the filter in the run's config (`run_config`) selects the items to send.

With Chat Completions, the SDK gives all items the same placeholder id, and requires an id on
assistant messages. So Recollect removes placeholder ids before memory reads the items, and gives
changed items a placeholder id again (the SDK removes it for Responses). If the SDK can write the
original items but not the view, the original items are sent."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from recollect.core.blocking import BlockingEngine
from recollect.core.boundary import Failure, guarded
from recollect.errors import FormatError, MissingExtra
from recollect.frameworks.turns import ShownRow, Turns

try:
    from agents import FunctionTool, RunConfig, RunContextWrapper, SQLiteSession
    from agents.memory import Session, SessionSettings
    from agents.models.chatcmpl_converter import Converter
    from agents.models.fake_id import FAKE_RESPONSES_ID
    from agents.run_config import CallModelData, ModelInputData
except ImportError as _error:
    raise MissingExtra(
        feature="the session for the OpenAI Agents SDK", extra="openai-agents"
    ) from _error

if TYPE_CHECKING:
    from agents import TResponseInputItem

_SAID_BY_MODEL = frozenset(
    {"reasoning", "function_call", "custom_tool_call", "file_search_call", "web_search_call"}
    | {"code_interpreter_call", "image_generation_call", "computer_call", "mcp_call"}
    | {"local_shell_call", "shell_call", "apply_patch_call"}
)
_SAID_CONTENT = frozenset({"output_text", "refusal"})


class RecollectSession:
    """A session of the SDK, with a memory. `history` is the SDK session that stores the unchanged
    items, by default in this process. Pass `SQLiteSession(name, "file.db")` to store the items on
    disk."""

    def __init__(
        self, session_id: str, memory: BlockingEngine, *, history: Session | None = None
    ) -> None:
        self.session_id = session_id
        self.session_settings: SessionSettings | None = None
        self.turns: Turns = Turns(memory, "openai_agents", "openai-responses")
        self.history: Session = SQLiteSession(session_id) if history is None else history

    async def get_items(
        self, limit: int | None = None, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> list[TResponseInputItem]:
        """Return the whole conversation. The filter of `run_config` selects the items to send."""
        del wrapper
        return await self.history.get_items(limit)

    async def add_items(
        self,
        items: list[TResponseInputItem],
        *,
        wrapper: RunContextWrapper[Any] | None = None,
    ) -> None:
        """Store the items of a turn. Memory stores the model's messages as well."""
        await self.history.add_items(items)
        reply_items = [item for item in items if _is_reply(item)]
        if reply_items:
            await self.turns.alearn(self.session_id, lambda: _reply(reply_items, wrapper))

    async def pop_item(
        self, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> TResponseInputItem | None:
        """Remove the newest item, so that the next request does not contain it."""
        del wrapper
        return await self.history.pop_item()

    async def clear_session(self, *, wrapper: RunContextWrapper[Any] | None = None) -> None:
        """Remove all items from the session. The memory still has the messages."""
        del wrapper
        await self.history.clear_session()

    def run_config(self, given: RunConfig | None = None) -> RunConfig:
        """Return a config whose filter prepares the run's requests. The config keeps the other
        settings of `given`. If `given` has a filter, that filter runs first."""
        given = given or RunConfig()
        before = given.call_model_input_filter

        async def filter_input(data: CallModelData[Any]) -> ModelInputData:
            if before is not None:
                answer = before(data)
                data = replace(
                    data,
                    model_data=await answer if inspect.isawaitable(answer) else answer,
                )
            return await self.shape(data)

        return replace(given, call_model_input_filter=filter_input)

    async def shape(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the items to send. Pass this method as a `call_model_input_filter`."""
        items = data.model_data.input
        shown_items = await self.turns.ashape(
            self.session_id, lambda: _request_body(data), lambda rows: _view(items, rows)
        )
        return (
            data.model_data if shown_items is None else replace(data.model_data, input=shown_items)
        )


def _request_body(data: CallModelData[Any]) -> dict[str, Any]:
    agent = data.agent
    body: dict[str, Any] = {
        "input": [_without_placeholder(item) for item in data.model_data.input],
        "tools": [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.params_json_schema,
            }
            for tool in agent.tools
            if isinstance(tool, FunctionTool)
        ],
    }
    if data.model_data.instructions:
        body["instructions"] = data.model_data.instructions
    name = agent.model if isinstance(agent.model, str) else getattr(agent.model, "model", None)
    if name:
        body["model"] = str(name)
    if agent.model_settings.max_tokens:
        body["max_output_tokens"] = agent.model_settings.max_tokens
    return body


def _view(
    items: Sequence[TResponseInputItem], rows: Sequence[ShownRow]
) -> list[TResponseInputItem]:
    """Return the view as the SDK's items; an unchanged item is the SDK's own object. Raise
    FormatError if the SDK can write the original items for Chat Completions but not the view. The
    view is not checked if the original items exist only in Responses."""
    shown_items = [_item(items, row) for row in rows]
    refusal = _refusal(shown_items)
    if refusal is not None and _refusal(items) is None:
        raise FormatError(
            f"the SDK does not accept the prepared messages ({refusal.error.__name__})"
        )
    return shown_items


def _item(items: Sequence[Any], row: ShownRow) -> Any:
    before = None if row.place is None else items[row.place]
    if before is not None and not row.touched:
        return before
    wire = row.wire
    content = wire.get("content")
    is_output = (
        wire.get("role") == "assistant"
        and isinstance(content, list)
        and all(part.get("type") in _SAID_CONTENT for part in content)
    )
    if "id" not in wire and (is_output or (before is not None and "id" in before)):
        return {**wire, "id": FAKE_RESPONSES_ID}
    return wire


def _refusal(items: Sequence[Any]) -> Failure | None:
    result = guarded(
        lambda: Converter.items_to_messages(items, preserve_tool_output_all_content=True)
    )
    return result if isinstance(result, Failure) else None


def _without_placeholder(item: Any) -> Any:
    if item.get("id") != FAKE_RESPONSES_ID:
        return item
    return {name: value for name, value in item.items() if name != "id"}


def _is_reply(item: Any) -> bool:
    kind = item.get("type") or "message"
    return kind in _SAID_BY_MODEL or (kind == "message" and item.get("role") == "assistant")


def _reply(reply_items: Sequence[Any], wrapper: RunContextWrapper[Any] | None) -> Mapping[str, Any]:
    reply: dict[str, Any] = {"object": "response", "status": "completed"}
    reply["output"] = [_without_placeholder(item) for item in reply_items]
    entries = [] if wrapper is None else wrapper.usage.request_usage_entries
    if entries:
        last = entries[-1]
        reply["usage"] = {
            "input_tokens": last.input_tokens,
            "output_tokens": last.output_tokens,
            "input_tokens_details": {"cached_tokens": last.input_tokens_details.cached_tokens},
        }
    return reply
