"""Bodies of the ledger as their column holds them: packed, where that is shorter.

Owns the packing. A body is a few hundred bytes, most of it names that every other has, too: these
stand in a dictionary that both sides know. Always holds: what was packed comes back equal, and
what an earlier version wrote, unpacked, is read as it is. The dictionary is never changed: what
another one packs gets another mark.
"""

from __future__ import annotations

import zlib
from typing import Final

_MARK: Final = b"\x01Z"
_LEAST_BYTES: Final = 64
# What is most common stands last (RFC 1950): a report as most turns write it, and a message.
_KNOWN: Final = (
    b'{"tool_calls":[{"function":{"name":"arguments"}}],"function_call_output","call_id":"call_'
    b'"is_error":true,"thinking":"signature":"cache_control":{"type":"ephemeral"}'
    b'["trim","done",["compact","skipped",["ingest","failed",["stand","done",["check","failed",'
    b'"moment":"over-limit","moment":"room","moment":"cache-expired",[["over_limit",{"limit":'
    b'[["no_compaction",{"why":["no_model"]}]][["trimmed",{"messages":[["pruned",{"results":'
    b'[["durable",{"where":"store"}]][["standing_found",{"facts":[["standing_block",{"facts":'
    b'[["not_recalled",{"gate":["words_apart",{"certainty":0.[["nothing_recalled"]]'
    b'[["found_by",{"facts":0,"passages":,"gate":["certain",{"certainty":0.,"threshold":0.'
    b'["terms_lost",{"terms":1}]}]]],["inject","done",0.00'
    b'[["recalled_block",{"tokens":,"fill":"everything"}]]],["pair","done",0.00'
    b'[["asked_before"]][["query_too_short"]],["recall","nothing",0.0,[["has_block"]]],'
    b'["load","done",0.0,[["session_loaded",{"messages":,"turn":'
    b'{"version":2,"turn":,"window_tokens":,"limit_tokens":,"tokens_before":,"tokens_after":,'
    b'"calibration_ratio":1.0,"moment":null,"lines":[["read","done",0.00,[["request_read",'
    b'{"messages":,"format":"anthropic"}]]],["read","done",0.000,[["messages_read",{"known":,'
    b'"fresh":2}]]],["align","done",0.000,[["aligned",{"course":"continued","shared":}]]],'
    b'["pair","done",0.000,[["view_made",{"rows":}],["repaired",{"repairs":}]]],["query","done",'
    b'0.000,[["asked",{"messages":3}]]],["recall","done",0.0,[["send","done",0.000,[["sent",'
    b'{"messages":}]]]],"recalled":[]}'
    b'{"role":"assistant","content":[{"type":"text","text":"\\n"},{"type":"tool_use","id":"toolu_'
    b'","name":"","input":{"path":"}}]}{"role":"user","content":[{"type":"tool_result",'
    b'"tool_use_id":"toolu_","content":"\\n    return self.\\n\\n        if \\n    def \\"'
    b'{"role":"user","content":[{"type":"text","text":" and the of "}]}'
)


def pack_body(body: bytes) -> bytes:
    """A body as its column holds it."""
    if len(body) < _LEAST_BYTES and not body.startswith(_MARK):
        return body
    packer = zlib.compressobj(zdict=_KNOWN)
    packed = _MARK + packer.compress(body) + packer.flush()
    return packed if len(packed) < len(body) or body.startswith(_MARK) else body


def unpack_body(stored: bytes) -> bytes:
    """What `pack_body` made; ValueError when it cannot be read."""
    if not stored.startswith(_MARK):
        return stored
    try:
        unpacker = zlib.decompressobj(zdict=_KNOWN)
        body = unpacker.decompress(stored[len(_MARK) :]) + unpacker.flush()
    except zlib.error as error:
        raise ValueError("a body is torn") from error
    if not unpacker.eof:
        raise ValueError("a body is torn")
    return body
