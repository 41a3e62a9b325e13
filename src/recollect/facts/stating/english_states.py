"""How English tells what is done or open, what is broken, how parts fit, what was built.

Owns the phrases only; `english` says in which order they are tried. Must never match a
state that names nothing: what the `…_OF_NOTHING` patterns find is talk of the moment. What always
holds: patterns are written for folded sentences and are bounded.
"""

from __future__ import annotations

import re
from typing import Final

from recollect.facts.stating.values import ADDRESS, CODE, PATH, STRONG, VERSION

STATE: Final = re.compile(
    r"\b(?:is|are|'s|remains?|stays?|was|were|has|have|hasn't|haven't|isn't|aren't|still"
    r"|currently) (?:still |now |currently |all |also |already |not |just |been |finally |only "
    r"|fully |completely |totally |basically |about |almost |nearly )*"
    r"(?:done|finished|complete|completed|merged|shipped|deployed|live|implemented|released"
    r"|rolled out|in production|in prod|wired up|migrated|resolved|fixed|tested"
    r"|documented|paid|booked|submitted|signed|delivered|installed|renewed"
    r"|confirmed|ordered|on hold|parked|paused|blocked|stuck|waiting (?:on|for)|pending|in progress"
    r"|in review|under review|half[- ]?(?:done|finished|way)|unfinished|incomplete"
    r"|outstanding|unresolved|unblocked|unimplemented|untested|a todo|to be done|stubbed"
    r"|overdue|postponed|scheduled for|awaiting|next up|not there|work in progress|wip"
    r"|behind schedule)\b"
    r"|\b(?:isn't|aren't|is not|are not|hasn't been|haven't been|has not been|have not been"
    r"|not) (?:\w+ )?(?:done|implemented|finished|complete|completed|merged|deployed|tested|started"
    r"|written|migrated|wired|hooked up|ready|supported|fixed|there|covered|built|released|booked"
    r"|paid|confirmed|documented)\b"
    r"|\b(?:haven't|hasn't|have not|has not|didn't|did not) (?:\w+ )?(?:implement\w*|finish\w*"
    r"|start\w*|begun|merge\w*|deploy\w*|test\w*|migrat\w*|writ\w+|wrote|done|got(?:ten)? (?:to"
    r"|around)|book\w*|paid|built|touched|fix\w*|ship\w*|port\w*|convert\w*|document\w*|submit\w*"
    r"|add\w*)\b"
    r"|\b(?:still|we|i|it|they|which) (?:needs?|have|has|need) (?:to be|to do|doing|work|a|an"
    r"|to)? ?(?:done|implemented|finished|written|tested|migrated|fixed|reviewed|added|cleaned"
    r"|ported|signed|renewed|booked|paid|approval|sign-?off|review|tests)\b"
    r"|\b(?:remaining|left to do|to-?do|still open|open items?|outstanding|next up|next steps?"
    r"|what's left|blockers?|on hold|in progress|left)\s*:"
    r"|\b(?:ticket|issue|pr|question|task|bug|item|case|story|position|invoice"
    r"|mr)\b[^,;]{0,20} (?:is|are|stays|remains) (?:still )?open\b|\bis still open\b|\bwaits (?:on"
    r"|for)\b|\b(?:is|are) blocked\b|\bblocked (?:by|on|until)\b|\bgone for good\b"
    r"|\b(?:isn't|aren't|is not|are not|hasn't been|haven't been|not been|not) \w{2,}(?:ed|en|one"
    r"|ilt|ipped|et|un) yet\b|\bstill (?:to be|has to be|have to be|needs|need|missing|to do|open"
    r"|pending|on the list|left)\b"
    r"|\b(?:i|we|team)(?:'ve| have| has| just| already| finally)* (?:finished|completed|merged"
    r"|shipped|deployed|released|rolled out|closed|submitted|booked|wrapped up|signed|paid|landed"
    r"|cut over|fixed)(?: the| our| all| my| both|(?= `| \S*\d| wp))"
    r"|\b(?:todo|status|done|wip|blocked|open|pending)\s*[:：]\s*\S"
    r"|\b(?:is|are) through\b(?! (?:the|a|which))|^\W*[\w /-]{3,40}: (?:shipped|done|finished|open"
    r"|blocked|in progress|merged|not started|missing|next (?:week|month|quarter|sprint)|pending"
    r"|wip|live)\b|\bwe're (?:still )?waiting (?:for|on) (?!you)\w+|\bi still owe\b"
)
STATE_OF_NOTHING: Final = re.compile(
    r"^\W*+(?:(?:ok|okay|all|and|so|yes|great|cool|nice|alright|now|well)\W+){0,3}(?:it|this|that"
    r"|these|those|both|everything|all|they|done|i'm|i am|we're|we are|you're|you|which|he|she)\W"
    r"|\b(?:build|tests?|test suite|suite|run|install|installation|command|search|download"
    r"|container|server|compile|lint|linter|ci) (?:is|are|was|were|has|have) (?:now |all |still "
    r"|already |just |not |been )*(?:done|finished|complete|completed|started|green|passing|ready"
    r"|running"
    r"|live)\b"
    r"|\bi(?:'m| am) (?:done|ready|stuck|blocked|waiting|finished)\b|\b(?:open|ready) (?:to"
    r"|for) (?:ideas|suggestions|discussion)\b|\bopen (?:the|a|an|it|up|your|source)\b"
    r"|\bis (?:there|missing) (?:a|an|any)\b|\bwaiting for (?:you|your)\b|\bready (?:to go|when)\b"
)
_BREAKS: Final = (
    r"(?:crashes|crashed|crash(?= (?:when|if|on|after|at|under|every))|fails?|failing|hangs"
    r"|leaks(?! out)|leaking|(?<!ing )(?<!take )breaks(?! down)|freezes|stalls|deadlocks?|times out"
    r"|corrupts|drops"
    r"|loses|misses|doubles|duplicates|overflows|panics|segfaults?|flickers|drifts|overheats"
    r"|reboots|disconnects?|errors out|blows up|chokes|returns? (?:a |an |the )?(?:wrong|stale"
    r"|empty|null|nothing|50\d|40\d|http)|throws|rejects|ignores|skips|swallows"
    r"|double[- ](?:counts?|charges?|sends?|fires?)|runs? out of|goes? (?:stale|down|out of sync)"
    r"|gets? (?:stuck|lost|truncated|corrupted|stale)|doesn't (?:work|load|start|boot|respond"
    r"|handle|support|sync|compile|render|scale|fire|persist|retry|refresh|close|release)"
    r"|don't (?:work|load|sync|match|line up)|does not (?:work|load|start|handle|support)"
    r"|stops? (?:working|responding)|can't (?:handle|cope|parse|connect|start|reach)|won't (?:start"
    r"|boot|load|compile|connect|turn))"
)
DEFECT: Final = re.compile(
    rf"\b{_BREAKS}\b[^.;]{{0,80}}?\b(?:when(?:ever)?|if|every|each|after|under|because"
    rf"|once|as soon as|due to|over|above|during|while|unless|past|beyond|without)\b"
    r"|\b(?:known|open|recurring|nasty|lasting|long-?standing|real|existing|serious"
    r"|intermittent) (?:issue|bug|problem|defect|limitation|race|leak|flake)\b"
    r"|\bthere(?:'s| is| are)(?: still| also| now)? (?:an? |some |still )?(?:\w+ ){0,3}(?:bug"
    r"|race(?: condition)?|memory leak|leak|deadlock|regression|defect|vulnerability|off-by-one"
    r"|security hole|data loss|limitation|mismatch|corruption)\b"
    r"|\b(?:has|have|is|are|'s|was|were|got)(?: now| already| just| currently| still| completely"
    r"| totally| permanently)* (?:expired|broken|corrupt(?:ed)?|dead|flaky|leaking|deprecated"
    r"|unreachable|unstable|buggy|out of date|outdated|out of sync|rate[- ]limited|vulnerable"
    r"|end[- ]of[- ]life|eol|misconfigured|incompatible|too slow|truncated)\b"
    r"|\b(?:is|are|was|were) (?:caused|triggered|broken) by\b|\bcauses? (?:a |an "
    r"|the )?(?:\w+ ){0,3}(?:crash|deadlock|leak|failure|timeout|outage|error|corruption|race)\w*"
    r"|\bturned out (?:to be|that)\b|\bit turns out\b"
    r"|\bknown (?:issue|bug|problem|limitation)s?\s*:|\bbug\s*:"
    r"|\b(?:is|are) off by\b|\bbounces?\W*$"
    r"|\b(?:cuts off|truncates|swaps|scrambles|garbles|eats) (?:the|all|some|every|rows|data)"
    r"|\bgets (?:banned|blocked|killed|rejected|throttled|truncated)\b"
)
CAUSE: Final = re.compile(
    r"\b(?:root cause(?! analysis)|real cause|actual cause|culprit|known (?:issue|bug|problem"
    r"|limitation)s?\s*:)"
    r"|\bthe cause\b|\b(?:that's|that was|here's|found) the (?:bug|cause|culprit|leak)\b"
    r"|\bturns out\b|^\W*+(?:found it|confirmed|conclusion|diagnosis)\s*[:—–-]+\s*\S"
)
DEFECT_OF_NOTHING: Final = re.compile(
    r"^\W*+(?:(?:ok|and|so|but|now|ugh|hm+|well|yes|still)\W+){0,3}(?:it|this|that|they|he|she|i"
    r"|you)(?:'s|'m| is| was| still| just| now)* (?:crash|fail|hang|break|broke|stuck|down|full"
    r"|dead|doesn't|does not|won't|can't|throws|returns|times out|errors)\w*"
    r"|\bi(?:'m| am)? (?:getting|seeing|still get|get|see|keep getting)\b|\bcan't (?:find|see|tell"
    r"|figure|remember|believe|wait)\b|\b(?:break|drop|reset|miss|full|over|down) (?:it|that|this"
    r"|me|you) down\b|\bno (?:known )?(?:issues?|bugs?|problems?)\b|\bmy (?:brain|head|back|day"
    r"|mind)\b|\bcoffee\b|\bignore\b"
)
# A model tells many states of the moment; these are of the work, and not of a run.
STATE_BY_MODEL: Final = re.compile(
    r"^\W*+(?:(?:ok|okay|done|fixed|so|and|yes|right)\W+)?(?!(?:it|this|that|these|those|you|i|we"
    r"|there|here"
    r"|everything|if|when|once|ensure|since)\b)(?:(?!\b(?:before|until|if|when|once|after|unless"
    r"|while|that|which)\b)[\w`/.' -]){3,80}? (?:is|are|has been"
    r"|have been) (?:now |all "
    r"|still |already |also |not |fully |only )*(?:done|finished|merged|deployed|shipped"
    r"|implemented|released"
    r"|migrated|rolled out|signed off|blocked (?:by|on|until)|on hold|half[- ]?done|waiting (?:on"
    r"|for) (?!you)"
    r"|still open|open\b(?! source)|pending|in review)\b"
    r"|\b(?:is|are|has|have)(?:n't| not) (?:been )?\w+(?:ed|en|one|ilt) yet\b|\bstill (?:open"
    r"|missing|to do)\b"
    r"|^\W*+(?:done|open|blocked|pending|remaining|still open|wip)\s*:\s*\S"
)
_ACTS: Final = (
    (r"talk", r"(?:directly |only )?to"),
    (r"speak", r"to"),
    (r"communicate", r"(?:with|over|via|through)"),
    (r"connect", r"(?:directly )?(?:to|through|via)"),
    (r"publish", r"(?:\w+ ){0,4}(?:to|on|into|over|via)"),
    (r"subscribe", r"to"),
    (r"consume", r"\w+"),
    (r"send", r"(?:\w+ ){0,5}(?:to|over|via|through)"),
    (r"push", r"(?:\w+ ){0,5}(?:to|into)"),
    (r"pull", r"(?:\w+ ){0,5}from"),
    (r"write", r"(?:\w+ ){0,5}(?:to|into)"),
    (r"read", r"(?:\w+ ){0,4}from"),
    (r"feed", r"(?:\w+ ){0,4}(?:to|into|the|our)"),
    (r"stream", r"(?:\w+ ){0,4}(?:to|into|from|over)"),
    (r"forward", r"(?:\w+ ){0,4}to"),
    (r"route", r"(?:\w+ ){0,4}(?:to|through|via)"),
    (r"prox(?:y|ie)", r"\w+"),
    (r"fan", r"out to"),
    (r"replicate", r"(?:\w+ ){0,3}(?:to|from)"),
    (r"sync", r"(?:\w+ ){0,4}(?:to|with|from|via|over)"),
    (r"sit", r"(?:behind|in front of|between|on top of)"),
    (r"run", r"(?:behind|inside|on top of|on (?!top|time|the (?:weekend|side))[a-z]\w+)"),
    (r"goe?", r"through"),
    (r"depend", r"on"),
    (r"consist", r"of"),
    (r"wrap", r"(?:the|our|a)"),
    (r"call", r"(?:into )?(?:the|our|out)"),
    (r"delegate", r"to"),
    (r"hand", r"(?:\w+ ){0,4}to"),
    (r"poll", r"\w+"),
    (r"own", r"(?:the|all)"),
    (r"load", r"(?:\w+ ){0,5}(?:into|from)"),
    (r"expose", r"\w+"),
    (r"only send", r"\w+"),
    (r"only talk", r"to"),
    (r"never call", r"\w+"),
    (r"never talk", r"to"),
    (
        r"share",
        (r"(?:a|one|the same) (?:\w+ ){0,2}(?:database|db|queue|cluster|schema|bucket|bus|repo)"),
    ),
)
_SINGULAR: Final = "|".join(rf"{verb}(?:e?s) {rest}" for verb, rest in _ACTS)
_PLURAL: Final = "|".join(rf"{verb} {rest}" for verb, rest in _ACTS)
_PASSIVE: Final = (
    r"(?:is|are) (?:built|based|layered) on(?: top of)?|(?:is|are) backed by|(?:is|are) fronted by"
    r"|(?:is|are) (?:split|divided|broken|broken up) (?:into|across|by)|is made (?:up )?of"
    r"|is composed of"
    r"|is (?:a |an |one |just a |still a )?(?:\w+ )?(?:monolith|microservices?|monorepo"
    r"|modular monolith|single binary|event[- ]driven|serverless|stateless|thin wrapper|singleton"
    r"|separate (?:service|process|repo|app))|are (?:stateless|independent|separate (?:services"
    r"|repos|processes|apps))"
    r"|(?:is|are) (?:handled|managed|run|owned|provided|driven|powered|terminated"
    r"|orchestrated) (?:by|with|in|through|via)|(?:has|have|gets?) (?:its|their) own"
    r"|uses? the same \w+|is separate from"
    r"|(?:is|are) (?:stored|kept|cached|persisted|queued|served|rendered|hosted|generated|computed"
    r"|processed) (?:in|by|on|from|via|through|at)"
)
STRUCTURE: Final = re.compile(
    rf"(?<=\w )(?:{_SINGULAR})\b|(?<=[a-rt-z]s )(?<!let's )(?:(?:then|also|all|both|only|always"
    rf"|never) )?(?:{_PLURAL})\b|(?<=\w )(?:{_PASSIVE})\b"
    r"|\b(?:architecture|data ?flow|pipeline|topology)(?: here| now)? (?:goes|is (?:event|layered"
    r"|a\b))"
    r"|\S ?(?:->|→|=>) ?\S{1,80} ?(?:->|→|=>) ?\S"
    r"|\bonly (?:speaks|supports|accepts|runs|works|allows|understands|reads)\b|\bone [\w-]+ (?:per"
    r"|for each) \w+|\b(?:is|are) (?:the |our )?(?:single )?(?:source of truth|read[- ]?only"
    r"|entry point)\b|\bby design\b"
    r"|\bgo(?:es)? (?:from [^,;]{2,30} (?:to|into)|into(?! more| detail)|straight to|via) \w+"
    r"|\band (?:the )?\w+ (?:share|use) (?:the same|one|a common)\b|(?<=\w )(?:is"
    r"|are) separate [\w ]{2,30}(?:files|services|repos|modules|processes|apps|packages)\b"
    r"|\bonly (?:the )?(?!i\b|you\b|we\b|he\b|she\b|one\b|thing\b)[a-z][\w-]+(?: [\w-]+)? (?:has"
    r"|have|can|may|gets|sees) \w+"
    r"|\bwe (?:now |all |only |just )?(?:track|monitor|log|test|build|deploy|host|lint|format"
    r"|bundle|style|sign|store|manage|serve|render|cache|queue|provision) (?:[\w-]+ ){0,3}?(?:with"
    r"|in|on|via|through|using|by|to) [a-z]\w+"
    r"|(?<=\w )(?:lives? in|runs? with|run with|runs? under|is written in|are written in) [a-z]\w+"
    r"|\bi (?:keep|store|track|manage|save) (?:the|my|all|our) [^,;]{2,40} (?:in|on|with) [a-z]\w+"
)
BUILT: Final = re.compile(
    r"\b(?:i've|i have|i|we've|we have|we|i've also|i just|i also)(?: now| just| also| already"
    r"| then| finally| only)* (?:added|implemented|built|created|moved|wrote|written|renamed"
    r"|extracted|put|placed|introduced|set up|configured|refactored|replaced|changed|updated|wired"
    r"|hooked up|split|converted|ported|migrated|switched|bumped|upgraded|downgraded|pinned|raised"
    r"|lowered|increased|reduced|set|removed|deleted|dropped|enabled|disabled|registered|exposed"
    r"|patched|fixed|mounted|pointed|installed|scheduled|stored|saved|generated|factored"
    r"|consolidated|merged|rewrote|rewritten|made|turned|named|documented|cached|indexed|soldered"
    r"|flashed|drafted|booked|reserved|ordered)\b"
    r"|\b(?:is|are|was|were|has been|have been|got|gets) (?:now |also |all |already "
    r"|currently )?(?:implemented|built|handled|defined|done|created|generated|registered|wired"
    r"|moved|renamed|replaced|extracted|configured|added|loaded|injected|declared|exported|set up"
    r"|split|rewritten|stored|written) (?:in|as|by|with|via|through|using|under|at|into|to|on|from"
    r"|out of)\b"
    r"|^\W*+(?:[-*•]\s*)?(?:\*\*)?(?:done[:.,!]?\s+)?(?:added|implemented|created|moved|renamed"
    r"|extracted|replaced|bumped|upgraded|pinned|switched|migrated|introduced|wired|refactored"
    r"|rewrote|removed|set) (?!up\b.{0,10}$)\S+"
    r"|\b[\w`)]+ now \w+s\b|^\W*+(?:done|fixed|updated|changed|ok|yes)[:.,!]+\s+(?:`[^`]+`"
    r"|[\w ]{1,30}) \w+s\b"
    r"|\b(?:lives?|sits?|resides?|is found|can be found|is located|goes) (?:now )?(?:in|under|at"
    r"|inside) \S+"
)
# What a model did: in the first person, or told of a thing as it is now.
BUILT_BY_MODEL: Final = re.compile(
    r"\b(?:i've|i have|i|we've|we have|i've also|i just|i also)(?: now| just| also| already"
    r"| then| finally| only)* (?:added|implemented|built|created|moved|wrote|written|renamed"
    r"|extracted|put|placed|introduced|set up|configured|refactored|replaced|changed|updated|wired"
    r"|hooked up|split|converted|ported|migrated|switched|bumped|upgraded|downgraded|pinned|raised"
    r"|lowered|increased|reduced|set|removed|deleted|enabled|disabled|registered|exposed"
    r"|patched|fixed|mounted|pointed|installed|scheduled|stored|saved|generated|factored"
    r"|consolidated|merged|rewrote|rewritten|documented|cached|indexed|soldered"
    r"|flashed|drafted|booked|reserved|ordered)\b"
    r"|\b(?:is now|are now|has been|have been) (?:also |all |already )?(?:implemented|built|handled"
    r"|defined"
    r"|created|registered|wired|moved|renamed|replaced|extracted|configured|added|loaded|exported"
    r"|set up|split"
    r"|rewritten|stored|written|set|changed|raised|lowered|pinned|bumped)"
    r" (?:in|as|by|with|via|through|using|under|at|into|to|on|from|out of)\b"
    rf"|^(?!\s*[-*+•\d](?!.*{PATH}))\W*+(?:done[:.,!]?\s+)?(?:added|implemented|created|moved"
    r"|renamed|extracted"
    r"|replaced|bumped|upgraded|pinned|switched|migrated|introduced|wired|refactored|rewrote"
    r"|removed)"
    r" (?!up\b.{0,10}$)\S+"
    r"|\b(?!(?:it|this|that|which|i|you|we)\b)[\w`)]+ now (?:\w+s\b|(?:\w+ ){0,2}\w*\d)"
    rf"|\b(?:is|are) now (?:at |on |in |set to |pinned to )?(?:{STRONG}|\d)|\b(?:is"
    rf"|are) (?:{STRONG}|\d\S*) now\b"
    r"|^\W*+(?:done|fixed|updated|changed)[:.,!]+\s+(?:`[^`]+`|[\w ]{1,30}) \w+s\b"
    r"|\b(?:lives?|resides?) (?:now )?(?:in|under|at|inside) \S+|^\W*+(?:the|our"
    rf"|your) (?:[\w`-]+ ){{1,3}}(?:is|are|sits)"
    rf" in `?{PATH}"
)
PLACE: Final = re.compile(
    rf"{CODE}|{ADDRESS}|{PATH}|{VERSION}|[a-z0-9]_[a-z0-9]|[a-z]\(\)|\b(?:from|to|into|in|at|with"
    rf"|by|using|via|behind|under|as|on)\b .{{0,60}}(?:\d|{STRONG})"
)
