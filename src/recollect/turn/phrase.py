"""Phrase: the question as it is embedded, without the names of who speaks in this memory.

In a chat between people every message is somebody's, so a name in the question tells messages
apart by who spoke, which the index knows better (`by=caroline`); to a model it only draws the
question towards all that mentions the name. Measured: two points on LoCoMo with every model.
Must never take out a name that nobody speaks under: it may be what is asked for.
"""

from __future__ import annotations

import re

from recollect.ports import Archive
from recollect.search.speakers import SPEAKS_FROM, speaker_names_asked, speaker_word
from recollect.values.lookup import CandidateQuery

_SPACES = re.compile(r"\s{2,}")


async def phrase(text: str, archive: Archive) -> str:
    """The text of which a question's vectors are made; itself where nobody is named.

    Whatever must not leave this machine is to be masked in it before.
    """
    names = speaker_names_asked(text)
    if not names:
        return text
    words = {speaker_word(name): name for name in names}
    query = CandidateQuery(words=tuple(words), lexical_limit=0, vector_limit=0)
    held = (await archive.candidates(query)).document_frequencies
    speaking = [name for word, name in words.items() if held.get(word, 0) >= SPEAKS_FROM]
    if not speaking:
        return text
    named = "|".join(re.escape(name) for name in sorted(speaking, key=len, reverse=True))
    rest = re.sub(rf"(?<!\w)(?:{named})(?:['’]s)?(?!\w)", " ", text)
    return _SPACES.sub(" ", rest).strip() or text
