"""What the command line says where a command comes with another package."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from recollect.surfaces import cli


def test_without_the_benches_the_package_to_install_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cli, "entry_points", lambda **_: ())
    result = CliRunner().invoke(cli.main, ["bench", "turn"])
    assert result.exit_code == 2
    assert "install recollect-bench" in result.output
