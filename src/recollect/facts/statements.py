"""Finds what a message states plainly, without a model.

Knows explicit forms only: remember …, decided …, always and never, prefer, X is value, a
correction, and of an assistant what it did itself. Must never take the words of a tool, of a
recalled block, of code or of a quotation (`readable`), and never invent one: where anything speaks
against a sentence (`wording`), or its subject cannot be named (`subjects`), it is refused; a model
is the way to more. What always holds: a draft is words of the span that its evidence names, its
trust is the segment's, it can be understood alone; pure; the time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Literal, TypeAlias

from recollect.facts.readable import OwnWords, spoken
from recollect.facts.subjects import Subject, name_subject
from recollect.facts.tokens import cut
from recollect.facts.wording import (
    BLANK,
    CORRECTS,
    LEAD_INS,
    REPLACED,
    Refusal,
    doubt,
    folded,
    order_at,
)
from recollect.rules.redaction import redact
from recollect.rules.text import bounded, statement_spans
from recollect.values.fact import EvidenceSpan, FactDraft, FactType, RefusedDraft
from recollect.values.segment import Segment

MOST_SENTENCES: Final = 400
MOST_SENTENCE_CHARS: Final = 600
"""Longer than any sentence that states one thing; what is longer was not typed."""
MOST_DRAFTS: Final = 40
"""More statements than a message makes: what has more is a document."""
MOST_CONTENT_CHARS: Final = 200
_MOST_TOLD_CHARS: Final = 1_200
"""A longer answer of a model explains: of it only counts what it says that it did itself."""
_CHARS_BEFORE: Final = 120
"""How far before a statement it is said that it corrects: about a sentence or two."""
_LEAST_WORDS: Final = 3
_LEAST_CORRECTING: Final = 2
_MOST_CORRECTING: Final = 12
"""Words of a correction that says no more than that it is one, and the new value."""
_AGAIN_SEGMENTS: Final = 3
_AGAIN_SHARE: Final = 0.8
_OPENING_SEGMENTS: Final = 4
_WRAPPED_CHARS: Final = 60

Form: TypeAlias = Literal["remember", "decided", "rule", "preference", "value", "correction", "did"]

# The forms.
_REMEMBER: Final = re.compile(
    r"\b(?:remember|keep in mind|note|don't forget|for the record|fyi|heads[- ]up|so you know"
    r"|important)\b(?! to (?!always|never))|记住|记一下|别忘了|注意"
)
_REMEMBER_LATER: Final = re.compile(
    r"^[^,:]{1,30}[,:] (?:please )?(?:remember|keep in mind|note)\b(?: that|:)? (?!to\b)"
)
_DECIDED: Final = re.compile(
    r"\b(?:we|i|team|everyone)(?:'ve| have| has| all| both| just| also| now| finally)* (?:decided"
    r"|agreed|settled|chose|chosen|picked(?! up)|opted|went with)\b(?! on what| what| whether| how"
    r"| if| when| yet)|\b(?:we're|we are|i'm|i am) (?:now |all |also )?(?:going (?:with|to use)"
    r"|sticking with|switching|moving (?:to|off|from|back)|migrating|dropping|adopting|replacing"
    r"|keeping)\b|\b(?:let's|we'll|we will) (?:just |now |instead |then )?(?:go with|use"
    r"|stick with|switch|keep(?! \w+ing)|drop|adopt|settle on|stay (?:on|with)|call it|host)\b"
    r"|^(?:decided|decision|agreed|going with|switching to|settled on|final (?:decision|call"
    r"|choice))\b|^\w[\w.+#-]* it is\W*$|\bwe (?:no longer|won't|will not|don't) (?:support|use"
    r"|ship|build|store|log)\b|\bwe switched\b|(?:我们|咱们?|团队|大家|组里|会上|我).{0,12}(?:决定"
    r"|商定|说好|敲定)|^(?:那)?就用.{0,4}[a-z]|定下来|(?:改用|换成|采用|选用|还是用"
    r"|switch to) ?[a-z][\w.+#-]*(?: [a-z][\w.+#-]*)? ?[了吧]*(?:[,，。]|\W*$)"
)
_DECIDED_CUE: Final = re.compile(r"\b(?:decision|decided|agreed|change of plans?|new plan)\b")
_NO_CHOICE: Final = re.compile(
    r"\b(?:let's|we'll|we will|with|to|use|keep|drop) (?:that|this|it|them|these|those|both|going"
    r"|in touch|your|option|the (?:first|second|third|former|latter|other|same|last)|an eye)\b"
)
_SETTLES_NOTHING: Final = re.compile(
    r"\b(?:decided|agreed|settled|chose|opted)\b(?: (?:not|never|both|all|just|simply|only))*"
    r"(?: to (?:disagree|differ|wait|meet|talk|speak|think|discuss|decide|see|move on|sleep|defer"
    r"|postpone|revisit|reconsider|hold off|agree|part ways|do (?:so|nothing)))?"
    r"(?: (?:(?:in principle|for (?:now|the moment)|next (?:time|week|month)|on (?:everything"
    r"|nothing|that much|the matter))|again|about|on|over|later|soon|first|more|further|longer"
    r"|together|then|already|nothing|anything|amicably|completely|entirely|fully|wisely|tomorrow"
    r"|today|yet|it|this|that|things?|the (?:matter|question|topic|issue|decision|rest)))*\W*$"
    r"|\b(?:agreed|decided) to (?:disagree|differ)\b|求同存异"
)
"""Idioms and deferrals: "we agreed to disagree", "we decided to sleep on it", "we agreed in
principle". Somebody agreed or decided, and nothing follows from it."""
_CASUAL: Final = re.compile(
    r"\b(?:picked|chose|chosen|going to use|i'm dropping|keeping|call it|moving to"
    r"|settled(?! on)|switch(?:ed|ing)?|(?:let's|we'll|we will) (?:\w+ )?(?:use|keep|drop"
    r"|host))\b(?P<object>.*)"
)
"""Verbs that also tell of everyday doings: "we picked the lock", "we'll keep you posted"."""
_EVERYDAY: Final = re.compile(r"^ ?(?:the|our|my|your)\b|^ \w+ly\b|^\W*$")
_SOMEBODY: Final = re.compile(r"^ ?(?:you|us|me|him|her|everyone|everybody)\b")
_EXCHANGED: Final = re.compile(r"\b(?:to|from|over|back|off)\b")
_NAMED: Final = re.compile(r"[`\"\d/]|\b(?!I\b)[A-Z]|[a-z][A-Z]|\b(?:for|as|instead of|over|to)\b")
_NOBODY: Final = re.compile(r"^(?:nobody|no[- ]one|nothing|none)\b|^没有?人")
_RULE: Final = re.compile(
    r"(?:^|[,;:.!—–] ?|\b(?:and|but|so|also|please|should|must|will|shall|to|we) "
    r"|\bi (?=\w+ (?:use|want|need)\b))(?:always"
    r"|never) (?!mind|been|seen|had|was|were|did|thought|heard|knew|got|felt|went|the\b|an?\b|in\b"
    r"|too\b|so\b|really|happens?|fails?|\w+ed\b|\w+ing\b|happy|glad|wrong|good|fun|easy|there"
    r"|know|gets?\b|works?\b)[a-z]|(?:^|[,;.!] ?|\b(?:and|please|so|but) )(?:do not|don't"
    r"|dont) (?:ever )?(?!worry|bother|mind|forget|know|think|care|want|need|have|like|see|get"
    r"|give up|apologi|hesitate|ask\b|explain|commit\b|run\b|stop|be )[a-z]+ (?:\S+ )*\S"
    r"|\bfrom now on\b|^(?:going forward|in future)\b|\b(?:is|are) (?:forbidden|mandatory|required"
    r"|not allowed|banned)\b|(?<!\bit )(?<!that )(?<!this )(?<!they )(?<!there )\bmust (?:never "
    r"|always |all |only |not )*(?:be|stay|go|use|pass|have(?! been)|include|follow|run|keep|match"
    r"|return)\b|^no (?!need|problem|idea|way|reason|rush|worries|one\b|doubt|matter|longer|more"
    r"|clue|point|hurry|issue|change)[a-z][\w-]+(?: [\w-]+){0,3} (?:in|on|without|before|after|for"
    r"|please|allowed)\b|^(?:only use|use only|use \S+(?: \S+){0,3},? (?:not|never|instead of"
    r"|rather than|everywhere))\b|\bplease (?:always |only )?(?:use|write|keep|answer"
    r"|reply) (?!this|that|it|them|these|your|the )\S+ \S|^(?:answer|reply"
    r"|respond)(?: to me)? (?:only )?in [a-z]+\b|^call me (?!when|if|back|later|at|on|crazy)"
    r"|\b(?:ask|tell|warn|notify) me (?:before|first|whenever|when)\b|\b(?:you|we) can .+ again\b"
    r"|\bit's (?:fine|ok|okay) to\b|^feel free to\b|(?:以后|今后|从现在[起开]).{3,}|一律|务必|永远"
    r"|总是|每次.{0,12}[都要]|必须|禁止|不准|不许|切勿|千万(?:别|不要)|(?:不要|别)(?:再|在|用|碰"
    r"|动|往|把|给).{3,}"
)
_STANDING: Final = re.compile(
    r"\b(?:always|never|from now on|going forward|in (?:the )?future|every time|whenever|any ?more"
    r"|ever|all|any|every|each|by default)\b"
    r"|以后|今后|从现在|一律|务必|总是|永远|每次|必须|千万|所有|任何|都"
)
_MANY_MUST: Final = re.compile(r"^(?!the |your |this |that |these |those )(?:\w+ )?\w+s must\b")
"""What all of a kind must do, "commits must be signed"; "the answer must be short" ends with it."""
_THIS_TURN: Final = re.compile(r"\b(?:yet|now|just|first|until)\b|先|这[条次]|了\W*$")
_PREFERS: Final = re.compile(
    r"\bi(?: really| much| strongly| generally| usually| always| also| still)* (?:prefer|favou?r"
    r"|dislike|can't stand|like (?:short|concise|small)|want (?:all|every|no|short"
    r"|concise))\b(?! (?:it|this|that|how|when|what|where|you|your|them|to)\b|\W*$)"
    r"|\bmy (?:preference|preferred|favou?rite|default|pronouns)\b.{0,40}\b(?:is|are)\b"
    r"|\bmy name is\b|\b(?!(?:who|it|what|which|that|this|she|he)\b)[a-z][\w'-]+ (?:prefers"
    r"|dislikes|is allergic)\b|\bi(?:'m| am) (?:a |an )?(?:vegetarian|vegan|allergic)\b"
    r"|我(?:更喜欢|比较喜欢|偏好|习惯用|不喜欢|不吃)"
)
_PLAIN_VALUE: Final = re.compile(
    r"^(?:the |our |my )?(?!(?:it|this|that|these|those|there|he|she|they|we|i|you|what|who)\b)"
    r"[\w.-]+(?: [\w.-]+){0,3} (?:is|are|=)(?: now)? (?P<value>\S+(?: \w+)?)$"
    r"|^[\u3400-\u9fff\w -]{1,16}?(?:现在)?(?:是|为|=)\s?(?P<amount>\S+(?: \S{1,3})?)$"
)
_QUOTED_VALUE: Final = re.compile(r"^\"[a-z\d][\w./:@#-]{0,40}\"$", re.ASCII)
_EXACT_KINDS: Final = frozenset({"version", "path", "url", "host", "region", "email", "name"})
"""Values that say what they are; a bare number needs a property that is known."""
_IDENTIFIER: Final = re.compile(r"[a-z][A-Z]|[a-zA-Z]_[a-zA-Z]")
_LINKED: Final = re.compile(
    r"\b(?:(?:is|are|has|have)(?:n't)?|'s|=|listens?|runs?|lives?|has|have|owns?|expires?|(?:moved"
    r"|changed|raised) to|happens?|ends?|starts?|go(?:es)? to|responsible"
    r"|we(?:'re)?(?: \w+)? (?:use|on|run)|uses?|requires?|maintained)\b"
    r"|[=:]|是|为|在|监听|用|改[成为到]|换成|调到|升级到|负责|超时"
    r"|[已还没正]"
)
_AMENDS: Final = re.compile(
    r"\b(?:sorry(?! for)|correction|make (?:that|it)|i meant|typo|oops|no,? wait|wait,? no"
    r"|my (?:bad|mistake)|i misspoke|actually|mixed (?:up|that)|misread)\b|^no,|, not \S|不对"
    r"|[说写记弄打]错|更正|纠正|改主意|改[成到]"
)
_DID: Final = re.compile(
    r"^(?:done[:,] )?(?:(?:i've|i have|i|we've) (?:also |just |now )?)?(?:bumped|moved|added|put"
    r"|set|changed|renamed|created|wrote|switched|updated|replaced|implemented|removed|configured"
    r"|split|extracted|wired)\b|^(?:我)?已经?(?:在|把|将)"
)
_NOW: Final = re.compile(r"\b(?:is|are) now\b|现在是|已经?(?:改|设|调|换)[成为到]")
_CAUSE: Final = re.compile(
    r"^(?:so )?(?:the )?(?:root )?cause(?: is(?: settled)?)?:|^root cause\b|^根因.{0,4}[是:]"
)
_TOLD_DECISION: Final = re.compile(r"\bwe (?:decided|agreed)\b|^(?:decision|decided):")
_MAKE_THAT: Final = re.compile(r"make (?:that|it) ")
_TRIGGERS: Final = {"decided": _DECIDED, "rule": _RULE, "preference": _PREFERS}

# What a statement must not be without the conversation.
_OWN_WORDS: Final = re.compile(r"\b(?:i|i'm|i've|we|we're|we've|our|my|us|me|let's)\b|我|咱|以后")
_POINTS: Final = re.compile(
    r"^(?:(?:it(?!')|its|it's|this|that|that's|these|those|they|he|she|him|her|both of|neither"
    r"|all (?:two|three|four|of)|here|there|which|who|what|is|are|was|were|should|must|uses"
    r"|reads?|returns?|only|but|and|because|otherwise|with|so|when|whenever|once|after"
    r"|in this case|the (?:same|former|latter|second|first|other|above|rest|new|fix|reason|issue"
    r"|problem|changes?|following)(?: one)?)\b(?! (?:repo|repository|project|app|codebase|team"
    r"|company|service|important|book|(?:fine|ok|okay) to)\b))"
    r"|^(?:[它他她]们?|其(?!他|实|它|余|中)|两者"
    r"|这(?!个?(?:项目|仓库|库|服务|台|套|边))|那(?!边|就|个?(?:项目|仓库))|以上|上面|如下|都)"
)
_POINTS_LATER: Final = re.compile(
    r"\b(?:it|them|that|this|these|those|one)(?=\W*$|[.,;!:)]|\s+(?:to|in|into|on|at|as|from|with"
    r"|by|up|now|yet|too|again|instead|all)\b)"
)
_WANTS_MORE: Final = re.compile(
    r"\b(?:an?|the|to|of|and|or|(?<!it )is|are|with|for|in|at|by|from|that)\W*$|[.!?\"] it is\W*$"
)
_INITIAL: Final = re.compile(r"[A-Z][a-z]+ [A-Z]\.$")
_ASKS_WHO: Final = re.compile(
    r"\b(?:share|provide|confirm|have|need|tell me|give me)\b.{0,40}\byour\b.{0,60}"
    r"\b(?:number|id)\b"
)
"""The assistant asks whom it has before it: the user is one of many, known by a number."""
_OF_ONESELF: Final = re.compile(r"\b(?:i|my|me)\b|我")
_CODE: Final = re.compile(r"`[^`]*`")
_LISTED: Final = re.compile(r"\s*+(?:[-*+•#]+\s+|\d{1,3}[.)、]\s*|\[[\w .-]{1,20}\]\s*)+")
_TRAILING: Final = re.compile(
    r"[\s,.;!，。—–-]*(?:thanks?(?: you)?|thx|ty|cheers|please|pls|谢谢|哈|哦)[\s.!！。~]*$"
)
_LIMITS: Final = re.compile(
    r"(?:but|only|except|unless|not|or|until|till|if)\b|但|除|只|不过|或", re.IGNORECASE
)
_APART: Final = re.compile(r"[,，、；;]\s*(?:and\s+|而)?|\s+(?:and|while|whereas)\s+")
_CLAUSE_END: Final = re.compile(
    r"[,;，；]|\s(?:because|since|cause|so that|so we|as it|otherwise)\b|因为|毕竟|不然"
)
_WORD: Final = re.compile(r"[a-z\d][\w'./:@-]*|[\u3400-\u9fff]")
_TITLE: Final = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|Prof|St)\.$")
_MARKS: Final = " \t\r\n.,;:!?\"'，。；：！？"
_TRIMMED: Final = " ,;:!?，；：！？-—–"
_TYPES: Final[dict[str, FactType]] = {
    "state": "task_state",
    "owner": "architecture",
    "choice": "decision",
    "stored": "architecture",
    "hosted": "architecture",
    "built": "architecture",
    "preference": "preference",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """The statements found in one segment, and why others were not taken."""

    drafts: tuple[FactDraft, ...] = ()
    refused: tuple[RefusedDraft, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sentence:
    """A sentence: what leads into it (`cues`), and the statement that is left (`body`)."""

    line: int
    start: int
    end: int
    text: str = field(repr=False)
    low: str = field(repr=False)
    """Folded, as long as the text; empty where it is too long for a statement."""
    first: int
    last: int
    """Where the body begins and ends."""

    @property
    def body(self) -> str:
        return self.low[self.first : self.last]

    @property
    def cues(self) -> str:
        return self.low[: self.first]

    @property
    def statement(self) -> str:
        """The body as it was said."""
        return self.text[self.first : self.last]

    @property
    def corrects(self) -> bool:
        return CORRECTS.search(self.low) is not None


def find_statements(segment: Segment, before: Sequence[Segment] = ()) -> Statements:
    """What a segment states plainly; `before` are its session's segments up to it, in order."""
    words = spoken(segment)
    by_user = segment.role == "user"
    sentences = list(islice(_sentences(segment.text, words.lines), MOST_SENTENCES))
    explains = not by_user and sum(len(sentence.low) for sentence in sentences) > _MOST_TOLD_CHARS
    doubts = [doubt(sentence.low) for sentence in sentences]
    reasons: list[str] = list(words.refused)
    drafts: dict[str, FactDraft] = {}
    listed: Form | None = None  # the form of the heading that a list stands under
    story = -1  # the line of which the rest is told, not stated
    for at, sentence in enumerate(sentences):
        listed = listed if _LISTED.match(sentence.text) else None
        story = sentence.line if doubts[at] is Refusal.STORY else story
        form = _form(sentence, by_user=by_user) or listed
        if form is None and sentence.low:
            continue
        if sentence.low.rstrip(" *").endswith(":") and form in ("remember", "decided"):
            listed = form
            continue
        if form is None:
            why: Refusal | None = Refusal.TOO_LONG
        elif story == sentence.line:
            why = Refusal.STORY
        elif Refusal.SARCASM in doubts[max(0, at - 1) : at + 2]:
            why = Refusal.SARCASM
        else:
            why = _out_of_place(sentence, words, explains=explains, by_user=by_user)
            why = (
                why
                or _doubted(sentence, form, doubts[at])
                or _not_alone(sentence, form, segment, before)
            )
        if why is None and form is not None:
            for draft in _drafts(segment, sentence, form, reasons):
                drafts.setdefault(" ".join(draft.content.casefold().split()), draft)
        elif why is not None:
            reasons.append(why)
        if len(drafts) >= MOST_DRAFTS:
            reasons.append(Refusal.TOO_MANY)
            break
    refused = tuple(RefusedDraft(reason=str(why), segment=segment.id) for why in reasons)
    return Statements(drafts=tuple(drafts.values())[:MOST_DRAFTS], refused=refused)


def _out_of_place(
    sentence: _Sentence, words: OwnWords, *, explains: bool, by_user: bool
) -> Refusal | None:
    if explains and not _DID.search(sentence.body):
        return Refusal.EXPLAINED
    beside = by_user and words.beside_paste and not _OWN_WORDS.search(sentence.low)
    return Refusal.BESIDE_PASTE if beside else None


def _sentences(text: str, lines: Sequence[tuple[int, int]]) -> Iterator[_Sentence]:
    for number, (first, last) in enumerate(lines):
        low = folded(text[first:last])
        for start, end in _whole(text, statement_spans(text, first, last)):
            part = low[start - first : end - first]
            if part.strip(_MARKS + BLANK):
                yield _sentence(text, number, (start, end), part)


def _whole(text: str, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The spans, put together where only the dot of a title parts them: "Ms. Petrova"."""
    begun, ended = -1, 0
    for start, end in spans:
        begun, ended = (start if begun < 0 else begun), end
        if not _TITLE.search(text, max(begun, end - 6), end):
            yield begun, end
            begun = -1
    if begun >= 0:
        yield begun, ended


def _sentence(text: str, line: int, span: tuple[int, int], low: str) -> _Sentence:
    low = low if len(low) <= MOST_SENTENCE_CHARS else ""
    mark = _LISTED.match(low)
    first, last = mark.end() if mark else 0, len(low.rstrip())
    while (lead := LEAD_INS.match(low, first, last)) and low[lead.end() : last].strip(_MARKS):
        first = lead.end()
    tail = _TRAILING.search(low, max(first, last - 40), last)
    last = tail.start() if tail is not None and tail.start() > first else last
    order = order_at(low[first:last])
    if order and len(_WORD.findall(low, first, first + order)) >= _LEAST_WORDS:
        last = first + order  # "the config is at /etc/app.toml, please open it"
    start, end = span
    whole = text[start:end]
    return _Sentence(line=line, start=start, end=end, text=whole, low=low, first=first, last=last)


def _form(sentence: _Sentence, *, by_user: bool) -> Form | None:
    """The surest form that a sentence has: what is doubtful so is no plainer read another way."""
    body = sentence.body
    if by_user:
        if _REMEMBER.search(sentence.cues) or _REMEMBER_LATER.search(body):
            return "remember"
        if _DECIDED_CUE.search(sentence.cues):
            return "decided"
        for form in ("decided", "rule", "preference"):
            if _TRIGGERS[form].search(body):
                return form
    elif _DID.search(body):
        return (
            "did"
            if any(token.kind in ("path", "name") for token in cut(sentence.statement))
            else None
        )
    elif _CAUSE.search(sentence.low) or _TOLD_DECISION.search(sentence.low):
        return "decided"
    elif (
        not _NOW.search(body)
        and name_subject(sentence.statement, "task_state").attribute != "state"
    ):
        return None
    if _LINKED.search(body) and _valued_parts(sentence.statement):
        return "value"
    if by_user and _plain_value(sentence.statement) is not None:
        return "value"
    short = len(_WORD.findall(sentence.low)) <= _MOST_CORRECTING
    if not (by_user and short and _AMENDS.search(sentence.low)):
        return None
    exact = re.search(r", not [A-Z]", sentence.text) or any(
        token.kind != "word" for token in cut(sentence.text)
    )
    return "correction" if exact else None


def _valued_parts(text: str) -> list[str]:
    """The statement as a whole where it gives one thing a value, else those of its parts that do;
    none where another part takes something back."""
    if _valued(name_subject(text, "config")) or _plain_value(text):
        return [text]
    parts = _APART.split(text)
    if any(_LIMITS.match(part) for part in parts):
        return []
    return [
        part
        for at, part in enumerate(parts)
        if _valued(name_subject(part, "config")) or (at == 0 and _plain_value(part))
    ]


def _plain_value(text: str) -> bool | None:
    """Whether "X is value" says by itself what it is about; None where it is another form."""
    match = _PLAIN_VALUE.match(folded(text).strip(_MARKS.replace('"', "")))
    value = (match["value"] or match["amount"]) if match else ""
    if not value:
        return None
    if _QUOTED_VALUE.match(value):
        return True
    tokens = cut(value)
    if len(tokens) != 1 or tokens[0].kind in ("word", "weekday", "often", "time", "date"):
        return None
    named = name_subject(text, "config")
    exact = tokens[0].kind in _EXACT_KINDS or _IDENTIFIER.search(text) is not None
    return exact or bool(named.attribute and named.value)


def _valued(named: Subject) -> bool:
    return named.told and bool(named.value) and named.attribute != "rule"


def _doubted(sentence: _Sentence, form: Form, of_all: Refusal | None) -> Refusal | None:
    """What speaks against a sentence of this form: doubts up to the end of the clause that has the
    form, for what follows is its reason, and questions and secrets anywhere."""
    match = _TRIGGERS[form].search(sentence.low) if form in _TRIGGERS else None
    end = _CLAUSE_END.search(sentence.low, sentence.first if match is None else match.end())
    clause = sentence.low if end is None or form == "correction" else sentence.low[: end.start()]
    why = doubt(clause, standing=form in ("remember", "rule", "preference"))
    if why is not None or of_all in (Refusal.QUESTION, Refusal.SECRET):
        return why or of_all
    if form == "decided" and _NO_CHOICE.search(sentence.body):
        return Refusal.POINTING
    if form == "decided" and _SETTLES_NOTHING.search(sentence.body):
        return Refusal.NO_SUBJECT
    nothing = form == "value" and not _valued_parts(sentence.statement)
    if nothing or (form != "rule" and _NOBODY.search(sentence.body)) or _everyday(sentence, form):
        return Refusal.NO_SUBJECT
    if form == "rule" and not _STANDING.search(sentence.low):
        passing = order_at(sentence.low[sentence.first :]) is not None or _THIS_TURN.search(
            sentence.low
        )
        once = match is not None and "must" in match[0] and not _MANY_MUST.search(sentence.body)
        return Refusal.REQUEST if passing or once else None
    asked = form in ("value", "preference", "correction") and order_at(sentence.body) == 0
    asked = asked and not _MAKE_THAT.match(sentence.body)
    return Refusal.REQUEST if asked else None


def _everyday(sentence: _Sentence, form: Form) -> bool:
    """Whether a verb of choosing has no object that is a choice."""
    match = _CASUAL.search(sentence.body) if form == "decided" else None
    if match is None or _DECIDED_CUE.search(sentence.low):
        return False
    chosen = match["object"]
    traded = not match[0].startswith("switch") or _EXCHANGED.search(chosen)
    if _SOMEBODY.search(chosen) or not traded:
        return True
    common = _EVERYDAY.search(chosen) or match[0].startswith("call it")
    return bool(common) and not _NAMED.search(sentence.statement, match.start("object"))


def _not_alone(
    sentence: _Sentence, form: Form, segment: Segment, before: Sequence[Segment]
) -> Refusal | None:
    """Why a statement cannot be understood without the conversation, or is not its speaker's."""
    by_user, body = segment.role == "user", sentence.body
    if not (by_user and sentence.corrects) and _POINTS.search(body):
        return Refusal.POINTING
    if form in ("decided", "rule", "did") and _POINTS_LATER.search(re.split("[,;，；]", body)[0]):
        return Refusal.POINTING
    cut_off = _WANTS_MORE.search(body) or _INITIAL.search(sentence.statement)
    if cut_off or not _closes(sentence.statement) or _wrapped(sentence, segment.text):
        return Refusal.HALF
    opening = [*before[:_OPENING_SEGMENTS], *before[-_OPENING_SEGMENTS:]]
    answers = (folded(near.text[:4_000]) for near in opening if near.role == "assistant")
    if _OF_ONESELF.search(body) and any(map(_ASKS_WHO.search, answers)):
        return Refusal.CUSTOMER
    return Refusal.ECHO if not by_user and _said_again(body, before) else None


def _closes(text: str) -> bool:
    bare = _CODE.sub(" ", text)
    pairs = zip("([“（「", ")]”）」", strict=True)
    even = not bare.count("`") and not bare.count('"') % 2
    return even and all(bare.count(opening) == bare.count(closing) for opening, closing in pairs)


def _wrapped(sentence: _Sentence, text: str) -> bool:
    """Whether a line was broken for its length in the middle of the sentence."""
    following = text[sentence.end : sentence.end + 2 * _WRAPPED_CHARS].lstrip(" \t")
    if not following.startswith("\n") or sentence.low.rstrip()[-1:] in ".!?:;。！？：；…":
        return False
    after = following[1:].partition("\n")[0].strip()
    line = sentence.end - text.rfind("\n", 0, sentence.end)
    return min(line, len(after)) >= _WRAPPED_CHARS and after[:1].islower()


def _said_again(body: str, before: Sequence[Segment]) -> bool:
    """Whether a user's statement just before holds its words; an answer to a question adds one."""
    own = {token.text for token in cut(body) if len(token.text) > 2}
    for segment in before[-_AGAIN_SEGMENTS:]:
        text = segment.text[:4_000] if segment.role == "user" else ""
        spans = (text[start:end] for start, end in statement_spans(text, 0, len(text)))
        stated = (span for span in spans if not span.rstrip().endswith(("?", "？")))
        said = {token.text for span in stated for token in cut(span)}
        if own and len(own & said) >= _AGAIN_SHARE * len(own):
            return True
    return False


def _drafts(
    segment: Segment, sentence: _Sentence, form: Form, reasons: list[str]
) -> Iterator[FactDraft]:
    if redact(sentence.text).spans:
        reasons.append(Refusal.SECRET)
        return
    said_before = folded(segment.text[max(0, sentence.start - _CHARS_BEFORE) : sentence.start])
    corrects = sentence.corrects or CORRECTS.search(said_before) is not None
    replaced = next((match for one_ in REPLACED if (match := one_.search(sentence.low))), None)
    for text in _valued_parts(sentence.statement) if form == "value" else [sentence.statement]:
        content = _content(text, sentence, corrects=corrects)
        if len(_WORD.findall(content.lower())) < (_LEAST_CORRECTING if corrects else _LEAST_WORDS):
            reasons.append(Refusal.TOO_SHORT)
            continue
        type_ = _type(content, form)
        named = name_subject(content, type_)
        yield FactDraft(
            type=type_,
            content=content,
            at=segment.said_at,
            evidence=(EvidenceSpan(segment=segment.id, start=sentence.start, end=sentence.end),),
            trust=segment.trust,
            made_by="rules",
            session=segment.session,
            subject=named.subject,
            attribute=named.attribute,
            replaces=sentence.text[slice(*replaced.span(1))].strip("`\"' .,") if replaced else "",
            corrects=corrects,
        )


def _content(text: str, sentence: _Sentence, *, corrects: bool) -> str:
    if corrects and len(_WORD.findall(text.lower())) < _LEAST_WORDS:
        text = sentence.text  # half a sentence says more with the words that make it a correction
    if len(text) > MOST_CONTENT_CHARS:
        match = next(
            (match for form in _TRIGGERS.values() if (match := form.search(sentence.body))), None
        )
        at = match.start() if match is not None else 0
        text = bounded(text, at, min(20, len(text) - at), MOST_CONTENT_CHARS)[:MOST_CONTENT_CHARS]
    text = " ".join(text.split()).strip(_TRIMMED)
    bare = text.strip(_TRIMMED + "\"'")
    return text if bare.count('"') % 2 else bare


def _type(content: str, form: Form) -> FactType:
    low = folded(content)
    if form == "did":
        return "implementation"
    if form == "decided":
        return "issue" if _CAUSE.search(low) else "decision"
    if form in ("rule", "preference"):
        return "config" if "my name is" in low else "preference"
    named = name_subject(content, "config")
    if form == "remember" and (not named.told or named.attribute == "rule"):
        if _DECIDED.search(low):
            return "decision"
        valued = any(sign.isdigit() for sign in low) and not _RULE.search(low)
        return "config" if valued else "preference"
    return _TYPES.get(named.attribute, "config")
