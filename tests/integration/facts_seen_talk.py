"""A recording that states things plainly, for commands that read sessions for facts."""

import json
from pathlib import Path

SAID = (
    "We decided to deploy the billing API on Fly from now on.",
    "Remember: the billing API listens on port 8443.",
    "Thanks, that is all for today!",
)


def write_recording(path: Path) -> Path:
    """A Claude Code session of a few messages, said long ago."""
    lines = [
        {
            "type": "user",
            "uuid": f"00000000-0000-0000-0000-{number:012d}",
            "parentUuid": None,
            "sessionId": "talk",
            "timestamp": f"2026-01-05T10:0{number}:00.000Z",
            "message": {"role": "user", "content": said},
        }
        for number, said in enumerate(SAID)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
