"""Finds the user's standing rules in messages ("never edit proto/gen by hand"), one clause each,
and the messages that withdraw or replace them. English only: `is_standing` (`statements.py`) marks
lasting orders of other languages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from recollect.core.rules.text import one_line, statement_spans
from recollect.core.search.statements import is_order, is_standing
from recollect.core.search.tokenize import tokenize

MAX_CLAUSE_CHARS: Final = 95
"""Whole messages in place of clauses made a brief of 300 tokens hold 7 rules in place of 9
(bench week)."""
_MAX_SENTENCE_CHARS: Final = 300
_MAX_MESSAGE_CHARS: Final = 1_200
"""Longer messages are mostly pasted. The longest prompt of bench week has 155 characters."""
_MIN_CLAUSE_CHARS: Final = 12
_MAX_MESSAGE_RULES: Final = 10
_MAX_RULES: Final = 300
"""A brief holds about 10 rules, and a long message of orders is a document. Each new rule is
compared with all others: 200 messages of 45 rules each took 16 s, and take 0.4 s."""
_SAME_RULE_SHARE: Final = 0.5
"""A rule can replace an earlier one if they share half of their words."""
_MIN_SHARED_WORDS: Final = 2
_FUNCTION_WORDS: Final = frozenset(
    word
    for text in (
        "only always never please keep use must should not may want from now tell every each you",
        "before after when until unless rather instead over like also very still again than done",
    )
    for word in tokenize(text)
)
"""Words that many rules share, whatever they are about."""


def _shape(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.VERBOSE)


_LASTING: Final = _shape(
    r"\b(?:from\ (?:now|here)\ on|going\ forward|in\ (?:the\ )?future|as\ a\ rule|every\ time"
    r"|each\ time|whenever|always|never|under\ no\ circumstances|at\ all\ times|no\ exceptions?)\b"
)
# "It always fails", "he never came", "always worked": what happens, not what shall be done.
_NARRATES: Final = _shape(
    r"\b(?:it|this|that|he|she|they|which|who|i|there|nobody|somebody|someone)['’]?(?:s|d|ve)?"
    r"\ (?:\w+\ )?(?:always|never)\b"
    r"|(?<!are\ )(?<!is\ )(?<!be\ )\b(?:always|never)\ \w+(?:ed|(?<![su])s)\b"
    r"|\b(?:was|were|had|has|did|would)\ (?:always|never)\b|\bnever\ ?mind\b|\bas\ always\b"
)
_FORBIDS: Final = _shape(
    r"^\W*(?:(?:please|also|and|but|so|you|we)\ )*"
    r"(?:(?:do\ not|don['’]?t|avoid|stop|hands\ off|stay\ away\ from|keep\ out\ of"
    r"|(?:may|must|can|shall|should)(?:\ not|n['’]t|not|\ never|\ only))\b)"
)
_FOR_NOW: Final = _shape(
    r"\b(?:yet|for\ now|right\ now|now|today|this\ time|here|worry|forget|know|think|need\ to"
    r"|bother|mind|hurry|get\ it|understand|see|remember|care)\b"
    r"|\b(?:do\ not|don['’]?t|stop)\ \w+\ (?:it|that|this|them)\W*$"
)
_PERMITS: Final = _shape(
    r"\b(?:ask\ me|check\ with\ me|(?:need|wait\ for)s?\ my\ (?:ok|okay|go|approval|permission)"
    r"|(?:unless|until|without|before)\ (?:i\b|me\b|asking|my\b)|not\ allowed|forbidden"
    r"|off[- ]limits|taboo|i\ (?:don['’]?t|do\ not)\ want\ (?:a|an|any|to\ see))"
    r"|\b(?:nothing|nobody|no\ one)\ (?:gets|goes|is|may|can|must|should|touches|merges|pushes)\b"
)
# Preferences, habits, styles, limits, and bans ("no crcmod").
_WEAK: Final = _shape(
    r"^\W*(?:(?:please|i|we|also)\ )*(?:really\ )?(?:prefer\b|(?:use|take|write|choose|stick\ (?:to"
    r"|with)|keep\ to|go\ with)\b.{1,60}\b(?:over|rather\ than|instead\ of|not|never|by\ default"
    r"|(?:in|for)\ (?:all|every|new|any|tests?|general)))\b"
    r"|\bwe\ (?:always\ |only\ |never\ )?(?:use|stick|name|prefer|squash|rebase|test|commit"
    r"|keep\ to|indent|write|spell|sign|version|measure|log|do\ not|don['’]?t)\b"
    r"|^\W*(?:(?:please|and|also)\ )*(?:keep|make|give|write|answer|reply|respond|explain|be|speak)"
    r"\b.{0,40}\b(?:short|brief|concise|terse|plain|bullets?|lower\ ?case|recap|emojis?"
    r"|in\ (?:english|german|french|spanish|italian|portuguese))\b"
    r"|^\W*(?:please\ )?only\ \w+|\b[a-z]{3,}s\ only\b|\bonly\W*$|\b(?:by\ hand|everywhere"
    r"|throughout)\b"
    r"|^\W*no\ (?!(?:one|idea|problem|need|worries|rush|way|more|longer|matter|doubt|wonder)\b)\w+"
)
_TOPICS: Final = """
commit commits subject subjects message messages docstring docstrings comment comments test
tests branch branches name names file files folder folders function functions class classes
method methods module modules import imports length indentation tabs spaces quotes unit units
timestamp timestamps time times date dates error errors exception exceptions log logs answer
answers reply replies language format formats encoding dependency dependencies package packages
migration migrations request requests secret secrets key keys config configuration flag flags
setting settings sql query queries string strings type types constant constants variable
variables version versions changelog readme docs label labels heading headings api endpoint
endpoints route routes fixture fixtures mock mocks snapshot snapshots schema schemas style
colour colours color colors icon icons number numbers price prices currency column columns id
ids url urls path paths script scripts release releases tag tags deploys
"""
_CONVENTION: Final = _shape(
    r"^\W*(?!(?:the|this|that|these|those|it|there|here|what|which|why|how|some|one|two|three"
    r"|yesterday|today|now)\b)"
    r"(?:(?!(?:where|which|that|those|these|this|the)\b)[\w/.'’`-]+\ ){0,4}?"
    rf"(?:{'|'.join(_TOPICS.split())})(?:\ (?:in|of|for|on)\ [\w/.'’`-]+)?(?::\ (?-i:[a-z`0-9])"
    r"|\ (?:(?:should|must|have\ to|need\ to|may|shall)(?:\ only|\ never|\ always|\ not)?\ \w+"
    r"|belongs?|lives?|goes|go|stays?|starts?\ with|ends?\ with|use|(?:is|are|be)\ (?!(?:broken|red"
    r"|green|missing|wrong|slow|gone|done|there|too|not|still|now|flaky|late|so|all|ok|okay|fine"
    r"|good|bad|empty|\w+ing)\b)\w+)\b)"
)
# Pasted output: "Error: 400 {…", "biome check\\n".
_PASTED: Final = re.compile(
    r"\\n|[{}]|=>|^\W*\w*(?:error|exception)\b:|^\W*\w+: ['\"/]", re.IGNORECASE
)
# Lines of others: quotes of mails, code, tables, chats, "Bob: always squash".
_OTHERS_LINE: Final = re.compile(
    r"[>|$%@+]| {4}|\t|\W*\d{1,2}:\d\d|[\w.-]+>"
    r"|\W*(?!(?i:no|note|rules?|reminder|remember|important|please|ps|style|\w+ing|"
    rf"{'|'.join(_TOPICS.split())})\b)[A-Z][\w.-]+(?: [A-Z][\w.-]*)?(?: \([^)]*\))?:\s"
)
_OTHERS_TEXT: Final = (
    r"\b(?:e-?mails?|letter|issue|ticket|text|comments?|review|readme|docs?|document(?:ation)?|page"
    r"|article|spec|output|logs?|error|slack|chat|thread|transcript|prompt|instructions|message"
    r"|reply|post|snippet|file|paste|quote|description|customer|client|report|summary)\b"
)
# What follows is not the user's: "The customer wrote: …", a code block, the head of a mail.
_QUOTES_REST: Final = re.compile(
    r"^\W*(?:```|~~~|-{3}|={3}|#{1,6} |<[\w!/]|diff --git|\"\"\"|(?:from|to|cc|subject|date|sent"
    r"|betreff|von|re|fwd)\b.{0,80}: |(?:hi|hello|hey|dear)\b.{0,40},$)"
    r"|\b(?:wrote|writes?|sa(?:ys?|id)|ask(?:s|ed)|told|replied|answered|states?|reads)\b[^:.]{0,40}:"
    r"|\b(?:this|that|the|following|attached|here|an?|from|by|of|his|her|their|\w+['’]s)\b"
    rf"[^:.]{{0,60}}{_OTHERS_TEXT}[^:.]{{0,40}}:|^\W*{_OTHERS_TEXT}[^:]{{0,40}}: (?=[A-Z\"'“])",
    re.IGNORECASE,
)
# The next line is not the user's: "Summarize this mail for me", "Look at it:".
_QUOTES_NEXT: Final = re.compile(
    rf"\b(?:this|these|following|attached|below)\b(?:.{{0,40}}{_OTHERS_TEXT}|\W*$)"
    r"|^\W*(?:please )?(?:summari[sz]e|translate|proofread|(?:re|para)phrase|shorten|correct)\b"
    rf"|^\W*{_OTHERS_TEXT}\W*$"
    r"|^(?!\W*(?:(?!their|his|her)\w+\W+){0,4}(?:(?:rule|convention|preference|guideline)s?"
    r"|now on|in mind|please|remember)(?: (?:for|in|on) [^:]{0,40})?:).*:\W*$",
    re.IGNORECASE,
)
_REPORTS: Final = re.compile(
    r"\b(?!(?:i|we|what|as)\b)[\w.-]+ (?:says|said|wrote|writes|told|asks|asked|claim(?:s|ed)|wants"
    r"|(?:suggest|recommend|insist|demand|state|expect)(?:s|ed)|replied)\b"
    r"|\baccording to\b|^\W*[\"“«‘']",
    re.IGNORECASE,
)
_OPTION: Final = re.compile(r"(?<!\S)--?\w[\w-]*")
_QUOTATION: Final = re.compile(r"\"[^\"]*\"|“[^”]*”|«[^»]*»|(?<!\w)'[^']*'(?!\w)|`[^`]*`")
_WITHDRAWS: Final = _shape(
    r"^\W*(?:(?:please|ok|okay|and|also|so|let['’]?s)\W+)*(?:drop|forget|scrap|skip|lift|cancel"
    r"|revoke|ignore|abandon|undo|remove)\b(?=.*\b(?:rules?|bans?|freeze|policy|conventions?"
    r"|restrictions?|requirement|always|never|every\ time|no\ longer|any\ ?more|again|i\ said)\b)"
    r"|\b(?:no\ longer|not\ any\ ?more|anymore|is\ over|are\ over|after\ all|(?:fine|ok|okay"
    r"|allowed|possible|free)\ again|(?:may|can)\b.{1,80}\b(?:now|again)|make\ (?:that|it)\b"
    r"|instead|changed\ my\ mind)\b"
)
_NAMES_RULE: Final = _shape(
    r"((?:[\w/.'’-]+\ ){1,3})(?:rules?|ban|freeze|policy|convention|restriction|requirement)\b"
    r"(?:\ (?:about|against|of|on|that)\ (.*))?"
)
_STATES_NEW: Final = _shape(r"\b(?:after\ all|instead|make\ (?:that|it)|from\ now\ on)\b")
_LEAD_IN: Final = _shape(
    r"^\W*(?:(?:please|also|and|so|but|ok(?:ay)?|btw|by\ the\ way|oh|yes|good|fine|(?:remember|note"
    r"|keep\ in\ mind)(?:\ that)?|(?:one|another)\ (?:more\ )?thing(?:\ about|\ on)?"
    r"|a\ word\ (?:about|on))\b[\s,:]*)+"
)
_TAIL: Final = _shape(
    r"[,;]?\s+(?:because|since|as\ (?:it|they|we)|so\ that|otherwise|or\ else)\b.*$"
)
# "Henrik still deploys from it", "100 is too tight": why the rule was made.
_REASON: Final = re.compile(
    r"(?-i:[A-Z0-9]\S*|it|they|he|she|this|that|there)\ (?:\w+\ )?"
    r"(?:is|are|was|were|has|have|\w+s)\b(?!.*`)",
    re.VERBOSE,
)
_POLITE: Final = re.compile(r"\s*,?\s*\b(?:please|for that|thanks)\b", re.IGNORECASE)
_CLAUSE_ENDS: Final = re.compile(r"\s*[;,]\s+|\s+[-–—]\s+|\s*\(")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """A standing rule of the user."""

    text: str = field(repr=False)
    """The clause that rules, on one line."""
    strength: int
    """3 for a rule with a lasting word or a permission, 2 for an order or a convention."""
    said_at: float = 0.0
    words: frozenset[str] = field(default=frozenset(), repr=False)


def standing_rules(messages: Iterable[tuple[float, str]]) -> list[Ruling]:
    """Return the rules that still hold after these messages of the user, in the order in which they
    were stated. `messages` are times and texts, oldest first."""
    rules: list[Ruling] = []
    for said_at, text in messages:
        if len(text) > _MAX_MESSAGE_CHARS:
            continue
        stated = 0
        for sentence in _sentences(text):
            if stated == _MAX_MESSAGE_RULES:
                break
            strength = _strength(sentence)
            withdrawn = _withdrawn_by(sentence, rules)
            if withdrawn:
                rules = [rule for rule in rules if rule not in withdrawn]
                if not strength and _STATES_NEW.search(sentence):
                    strength = max(rule.strength for rule in withdrawn)
            if strength and not (withdrawn and _NAMES_RULE.search(sentence)):
                new = replace(_ruling(sentence, strength), said_at=said_at)
                changes = bool(_WITHDRAWS.search(sentence))
                rules = [rule for rule in rules if not _replaces(new, rule, changes=changes)]
                rules = [*rules[1 - _MAX_RULES :], new]
                stated += 1
    return rules


def by_weight(rules: Sequence[Ruling]) -> list[Ruling]:
    """Sort rules: the strongest first, and among these the newest."""
    return sorted(rules, key=lambda rule: (-rule.strength, -rule.said_at))


def _sentences(text: str) -> Iterable[str]:
    for line in _own_lines(text):
        for start, end in statement_spans(line, 0, len(line)):
            sentence = one_line(line[start:end])
            if _MIN_CLAUSE_CHARS <= len(sentence) <= _MAX_SENTENCE_CHARS:
                yield sentence


def _own_lines(text: str) -> Iterable[str]:
    """Yield the lines that the user wrote, up to the first that introduces a text of others. It is
    worse to take a rule from such a text than to lose one of the user's."""
    for line in text.splitlines():
        if not line.strip() or _OTHERS_LINE.match(line):
            continue
        quote = _QUOTES_REST.search(line)
        yield line[: quote.start()] if quote else line
        if quote or _QUOTES_NEXT.search(line):
            return


def _strength(sentence: str) -> int:
    is_question = sentence.rstrip(" \"'”)*_").endswith(("?", "？"))
    if is_question or _PASTED.search(sentence) or _REPORTS.search(sentence):
        return 0
    said = _QUOTATION.sub("`x`", sentence)
    if is_standing(said) and not _NARRATES.search(said):
        return 3
    plain = _LEAD_IN.sub("", said)
    if _PERMITS.search(plain) or (_LASTING.search(plain) and not _NARRATES.search(plain)):
        return 3
    if _FORBIDS.match(plain) and not _FOR_NOW.search(plain):
        return 3
    return 2 if _CONVENTION.search(plain) or _WEAK.search(plain) else 0


def _ruling(sentence: str, strength: int) -> Ruling:
    text = _clause(sentence)
    return Ruling(text=text, strength=strength, words=_words(sentence))


def _clause(sentence: str) -> str:
    text = _LEAD_IN.sub("", sentence) or sentence
    text = _POLITE.sub("", _TAIL.sub("", text)).rstrip(" .!,;:")
    ends = [gap.start() for gap in _CLAUSE_ENDS.finditer(text)]
    pieces = [
        text[start:end].lstrip(" ,;-–—(")
        for start, end in zip([0, *ends], [*ends, len(text)], strict=True)
    ]
    ruling = 0  # a piece alone lacks its subject: "the database is on 5433, never on 5432"
    if len(text) > MAX_CLAUSE_CHARS:
        ruling = next((index for index, piece in enumerate(pieces) if _strength(piece)), 0)
    clause = pieces[ruling]
    for piece in pieces[ruling + 1 :]:
        if len(clause) + len(piece) + 2 > MAX_CLAUSE_CHARS or _REASON.match(piece):
            break
        clause = f"{clause}, {piece}"
    if len(clause) > MAX_CLAUSE_CHARS:
        clause = f"{clause[:MAX_CLAUSE_CHARS].rpartition(' ')[0]} …"
    return clause


def _words(sentence: str) -> frozenset[str]:
    words = {word for word in tokenize(sentence) if len(word) > 2 or word.isdigit()}
    return frozenset(words | {*_OPTION.findall(sentence)}) - _FUNCTION_WORDS


def _withdrawn_by(sentence: str, rules: Sequence[Ruling]) -> list[Ruling]:
    if sentence.endswith(("?", "？")) or not _WITHDRAWS.search(sentence):
        return []
    named = _NAMES_RULE.search(sentence)  # "the squash rule"
    # "Fix the importer, it no longer deploys" is work for now.
    if is_order(sentence) and not (
        named or _LASTING.search(sentence) or _STATES_NEW.search(sentence)
    ):
        return []
    words = _words(f"{named[1]} {named[2] or ''}" if named else sentence)
    shared = [len(rule.words & words) for rule in rules]
    most = max(shared, default=0)
    if most < (1 if named else _MIN_SHARED_WORDS):
        return []
    return [rule for rule, count in zip(rules, shared, strict=True) if count == most]


def _replaces(new: Ruling, old: Ruling, *, changes: bool) -> bool:
    """Return whether a rule takes the place of an earlier one. Rules that each have a word of their
    own ("the auth module", "the billing module") hold both, unless only numbers differ or the new
    one says that it changes something."""
    fewer = min(len(old.words), len(new.words))
    if len(old.words & new.words) < max(_MIN_SHARED_WORDS, _SAME_RULE_SHARE * fewer):
        return False
    differing = old.words ^ new.words
    is_narrower = old.words <= new.words or new.words <= old.words
    return changes or is_narrower or all(word.isdigit() for word in differing)
