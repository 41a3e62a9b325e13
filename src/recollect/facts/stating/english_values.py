"""How English states a value of a named thing, and how it corrects one.

Owns the phrases only; `english` says in which order they are tried. Must never take a
count, a result or an example for a value. What always holds: patterns are written for folded
sentences and are bounded, so the time is linear in the sentence.
"""

from __future__ import annotations

import re
from typing import Final

from recollect.facts.stating.values import (
    ADDRESS,
    CODE,
    MEASURED,
    NAME,
    NUMBER,
    PATH,
    STRONG,
    TIME,
    VALUE,
    VERSION,
)

POINTING_SUBJECT: Final = re.compile(
    r"^\W*+(?:(?:ok|okay|and|so|but|now|well|yes|no|oh|btw|also|actually|right|sorry|wait|ah|hm+"
    r"|then|basically|cool)\W+){0,3}(?:it|this|that|these|those|they|he|she|there|here|which|what"
    r"|today|tomorrow|yesterday|you|something|everything|nothing|one|i)\b"
)
_THINGS: Final = (
    r"(?:ports?|paths?|urls?|uris?|hosts?|hostname|domain|subdomain|endpoints?|versions?|limits?"
    r"|timeouts?|ttl|schedules?|cron(?: job)?|deadline|due date|budget|quota|threshold|interval"
    r"|frequency|retention|rate limit|batch size|pool size|page size|buffer size|window"
    r"|max(?:imum)?|min(?:imum)?|default|defaults|address|ip|subnet|cidr|bucket|region|zone|cluster"
    r"|namespace|branch|repo|repository|directory|folder|file|database|db|schema|table|queue|topic"
    r"|index|channel|prefix|suffix|name|username|user|email|phone|number|size|count|capacity"
    r"|resolution|frame ?rate|baud ?rate|voltage|frequency|sample ?rate|learning rate|seed|epochs"
    r"|replicas|workers|threads|retries|concurrency|memory|ram|heap|cache|disk|cpu|price|cost|rent"
    r"|rate|fee|width|height|length|weight|dose|dosage|speed|id|flag|env var|variable|setting|key"
    r"|header|locale|timezone|time zone|encoding|format|license|release|launch|freeze|cutoff"
    r"|standup|stand-up|meeting|appointment|flight|train|ferry|checkout|check-in|check-out|arrival"
    r"|departure|reservation|booking|party|birthday|wedding|exam|backup|backups|dump|job|sync"
    r"|build number|word count|target|goal|temperature|pin|gpio|i2c address|container|image|tag"
    r"|model|dataset|checkpoint|serial)"
)
_SET: Final = (
    r"(?:is|are|'s|=(?=\s)|equals|stays(?: at)?|remains(?: at)?|is now|are now|is set to"
    r"|is currently"
    r"|is called|is named|is still|points (?:to|at)|lives (?:in|at|on|under)|sits (?:at|in|on)"
    r"|goes to|defaults to|moved to|changed to|changes to|was changed to|was moved to|became"
    r"|has been (?:set|moved|changed|raised|lowered|bumped) to|ends (?:on|at)|starts (?:on|at)"
    r"|opens at|closes at|expires(?: on| at| in)?|runs (?:at|on|every)|must be|leaves (?:at|on"
    r"|from)|departs (?:at|on|from)|arrives (?:at|on)|has an? (?:\w+ ){0,2}of|:)"
)
_PLACED: Final = (
    r"(?:listens?|runs?|serves?|is served|are served|is running|is hosted|are hosted|is deployed"
    r"|are deployed|deploys|lives?|is located|are located|is stored|are stored|is mounted|resides?"
    r"|sits?|is exposed|binds?|is available|is reachable|answers|is pinned|are pinned|is capped"
    r"|are capped|is limited|are limited|is set|are set|defaults?|expires?|is due|are due"
    r"|is scheduled|are scheduled|fires?|kicks? off|starts?|happens?|takes? place|go(?:es)? out"
    r"|go(?:es)? live|backs? up|is backed up|are backed up|rotates?|resets?|renews?|closes?|opens?"
    r"|meets?|is kept|are kept|are written|is written|gets? written|logs?|points?|is bound"
    r"|is published|are published|lands?|ends? up|is checked in|is pushed|are pushed|ships?|ship"
    r"|launch(?:es)?|leaves?|departs?|arrives?|lands|is booked|are booked|is reserved|retries|retry"
    r"|polls?|refresh(?:es)?|syncs?|are purged|is purged|are deleted|is deleted|is cleaned"
    r"|times out|is on|are on|is at|are at|is in|is under|caps out|tops out|maxes out|accepts"
    r"|allows|handles|holds|takes|supports|requires|targets|costs?)"
)
_PREPOSED: Final = (
    r"(?:on|in|at|to|under|by|behind|every|from|for|after|up to|via|over|with|until|through|as"
    r"|within|between|against|using|a max(?:imum)? of|at most|exactly|a|an|no more than|port)"
)
STATED_VALUE: Final = re.compile(
    rf"\b{_THINGS}\b[^,;?!]{{0,60}}?(?:\b|(?<=\s)|(?=['=:])){_SET}\s*(?:[a-z]+ ){{0,5}}{VALUE}"
    rf"|\b{_PLACED} (?:now |only |currently |always |internally |externally |locally |still "
    rf"|out )?(?:{_PREPOSED} )+(?:the |our |a |an |port |version |tcp |udp |node |python "
    rf"|each )*(?:[a-z-]+ ){{0,3}}(?:{STRONG}|{NUMBER})"
    rf"|\b(?:is|are|'s) (?:now |still |currently |pinned |locked |fixed |frozen )*(?:on |at |to "
    rf"|in |under |called |named )?(?:the |our |port |version |release )*(?:{CODE}|{ADDRESS}|{PATH}"
    rf"|{VERSION}|{NAME})"
    rf"|\b(?:we're|we are|i'm|i am|they're|still|currently|project(?:'s| is)|app(?:'s| is)"
    rf"|repo(?:'s| is)|server(?:'s| is)|prod(?:uction)?(?:'s| is)|staging(?:'s| is)|cluster(?:'s"
    rf"| is)|everything(?:'s| is)) (?:still |now |currently |already |all )*(?:on|running|using|at"
    rf"|targeting) (?:[a-z][\w.+#-]* ){{1,3}}v?\d[\w.]*"
    rf"|\b(?:we|project|app|service|server|repo|code|backend|frontend|api|it all|everything|team"
    rf"|site|cluster|prod|staging) (?:now |still |currently |only |all |also )*(?:uses?"
    rf"|runs?(?: on)?|targets?|requires?|needs?|supports?|builds? (?:with|on|against)|ships? with"
    rf"|deploys? (?:to|on|with|via)) (?:[a-z][\w.+#-]* ){{1,4}}v?\d[\w.]*"
    rf"|\b(?:is|are|stays|remains) (?:now |still |currently |always |only |all |both )*(?:on|at"
    rf"|under|behind) (?:port )?(?:{VALUE})|\b(?:is|are) (?:supposed|meant"
    rf"|expected) to be (?:under |below |at |on |in |over |above )?(?:{STRONG}|{NUMBER})|\b(?:is"
    rf"|are) (?:called|named) (?!\w+ly\b|by\b|from|for\b|when|in\b|on\b|with|once|at\b|a\b|an\b"
    rf"|the\b|every|each|before|after|again|back|if\b|so\b)\S+"
    rf"|\bname(?:'s| is) (?!misleading|wrong|fine|ok|too|bad|good|taken|not|already|still|a\b|the\b"
    rf"|just)\S+|{VERSION} is (?:our|the) (?:minimum|max\w*|oldest|newest|lowest|target|default"
    rf"|baseline|current)"
    rf"|\b(?:has|have|had|gets?|got) {VERSION}|\b[a-z]+s (?:on |off |up )?(?:only )?(?:at|every|for"
    rf"|up to|after|on) {NUMBER}(?: ?[a-z/]+)?(?=[\s,.;)]|$)"
    rf"|(?:^\W*|[,;:]\s+|\b(?:ok|so|and|but|oh|no|yes|also|btw|sorry|actually|well)\W+)(?:the |our "
    rf"|my |[a-z][\w-]*'s )?[a-z][\w./-]*(?: [\w./-]+){{0,5}} (?:is|are|=) (?:now |still "
    rf"|currently |exactly |about |around |only |just |at most |at least |under |below "
    rf"|max )*{NUMBER}"
    rf"|\b(?:limit(?:ed)? (?:of|to)|capped at|cap of|timeout of|ttl of|budget of|default of"
    rf"|max(?:imum)?(?: of| is)?|min(?:imum)? (?:of|is)) {NUMBER}[^.,;]{{0,30}}"
    rf"|\b(?:allows|accepts|holds|handles|supports|costs|pay|pays|charges|fits|scales (?:up"
    rf"|down) to|needs|requires) (?:up to |at most |only |about )?{NUMBER}(?: [a-z]+)?"
    rf"|\b(?:gets?|is|are) \w+ed (?:every|each|on|at|by) (?:the )?(?:{STRONG}|\w+ber\b|[a-z]+ary\b)"
    rf"|\b(?:we're|we are|i'm) (?:still )?stuck on (?:[a-z][\w.+#-]* ){{1,3}}v?\d[\w.]*"
    r"|\b(?:reports?|measures?|returns?|stores?|counts?|is|are|works?|logs?) in (?:feet|met(?:er"
    r"|re)s|cents|utc|celsius|fahrenheit|kelvin|seconds|milliseconds|bytes|euros|dollars|local time"
    r"|miles|inches|pounds|francs|chf|eur|usd)\b"
    r"|\b(?:runs?|lives?|is|are|hosted|deployed) in [a-z]{2}-[a-z]+-\d\b"
    rf"|\bnew {_THINGS}(?: is|:|,)? (?:{STRONG}|{NUMBER})"
    rf"|^\W*(?:(?:ok|so|and|but|oh|btw|also|fyi|yes|no)\W+){{0,2}}(?:the|our|my|all|each|every"
    rf"|both) (?!(?:error|test|tests|build|log|logs|output|page|trace|result|last|first|second|next"
    rf"|other|same|issue|problem|goal|probability)\b)[\w'-]+(?: [\w'-]+){{0,5}}? (?:runs?|ticks?"
    r"|expires?|takes?"
    r"|costs?|go|goes|opens?|closes?|starts?|ends?|lasts?|gets?|weighs?|holds?|needs?|times?"
    r"|leaves?|arrives?"
    rf"|use|uses|is|are|has|have) [^?]{{0,30}}?(?:{ADDRESS}|{PATH}|{VERSION}|{TIME}|{MEASURED})"
    rf"|\b(?!i\b|you\b|it\b|who\b|that\b|what\b)[a-z]+ (?:gets|receives|takes over|owns|covers"
    rf"|joins|leaves|arrives|presents) [^,;?]{{0,40}}?(?:{STRONG})|\buses? (?:channel|port|slot|pin"
    rf"|topic|table|queue|profile|region|bus|address) \S*\d|\b(?:stops?|ends?|begins?|starts?"
    rf"|closes|opens|launch\w*|retires?) (?:in|by|on) (?:{STRONG}|(?:early |mid |late )?(?:jan|feb"
    rf"|mar|apr|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b)"
    rf"|\b(?:is|are) in (?:kroner|kronor|yen|pesos|rupees|kg|lbs|grams|lit(?:er|re)s|kilomet\w+"
    rf"|minutes|hours|percent)\b|\b(?:time|times) out after \S*\d|\b(?:older|newer|larger|bigger"
    rf"|longer|smaller) than {MEASURED}[^,;]{{0,20}} (?:are|is|get|gets) \w+"
)
VALUE_OF_NOTHING: Final = re.compile(
    r"\b(?:graph|chart|curve|dashboard|plot)\b"
    r"|(?<!for )(?<!of )\b(?:error|exception|failure|traceback|typo|bug|problem|warning|crash|line"
    r"|stack ?trace"
    r"|message|output|result|log|answer|example|e\.g)s? (?:is|are|was|in|at|on|says)\b|\b(?:took"
    r"|takes?|found|saw|got|returned|shows?|printed|counted|there (?:are|were|is|was)|passed|failed"
    r"|passing|failing|only \d+ of)\b [^,;]{0,20}\d|\b\d+ (?:tests?|errors?|warnings?|failures?"
    r"|hits|matches|results|files? changed|insertions|deletions|occurrences)\b|\bstep \d|\bline \d"
    r"|\b\d+ minutes ago\b|\b\d+ (?:lines|functions|classes|todos)\b|\b(?:see|check|open|look at"
    r"|run|visit|read|refer to|edit) (?:the )?(?:file )?`|\b(?:i|you) (?:can|could|should) (?:see"
    r"|find|check|run|use)\b|\bwhat's\b|\bhere(?:'s| is)\b|\bit's \d|\bis \d+(?:st|nd|rd|th)\b"
    r"|^\W*[\w -]{1,40}:\s*`[^`]*`\W*$|\bshould (?:have|use|get|take|return|show)\b"
)
CORRECTION: Final = re.compile(
    rf"^\W*+(?:(?:oh|ah|no|wait|oops|hmm|ok|so|and|uh|um|argh|ugh|damn"
    rf"|hang on)\W+){{0,3}}(?:sorry(?! for| about| to)|correction|actually|i meant|my (?:bad"
    rf"|mistake)|scratch that|scrap that|typo|wrong|make that|apologies"
    rf"|not \S+)\b[^.?]{{0,120}}?(?:{VALUE}|\bnot\b|\binstead\b)"
    rf"|(?:{VALUE}),? (?:and )?not (?:{VALUE}|the |a )|\bnot {VALUE}[,.]? (?:but|it's|rather)\b"
    rf"|\bi (?:meant?|misspoke|was wrong)\b[^.?]{{0,80}}?{VALUE}|\bshould (?:be|read"
    rf"|have been) {VALUE}[^.]{{0,20}}\bnot\b"
    rf"|\b(?:mixed (?:it|that|them|this) up|mixed up|got (?:it|that) wrong"
    rf"|misremembered)\b[^.?]{{0,60}}?{VALUE}"
    r"|(?:\b(?:is|are|in|on|at|to)|\w's) [\w./:-]+(?: now)?,? not (?:in |on |at |the )?"
    r"(?!sure|yet|really|very|just"
    r"|only|so\b|too\b|that\b|a\b|an\b|all\b|because|even|always|necessarily)[\w./:-]+\W*$"
    r"|\b(?:isn't|is not|aren't|are not) [\w./:+#-]+ any ?more,?"
    r" (?:it's|they're|but|now) [\w./:+#-]+"
)
