"""`maos access`, and `maos token` with a scope."""

import json
from pathlib import Path

from tests.cli.conftest import Invoke


def test_access_is_granted_checked_listed_and_revoked(db: Path, invoke: Invoke) -> None:
    assert invoke("token", "create", "phone", "--role", "answerer", "--on", "run/r-1").exit_code == 0
    assert "answerer on run/r-1" in invoke("token", "list").stdout
    denied = invoke("access", "check", "token:phone", "answer", "run/r-2")
    assert (denied.exit_code, denied.stdout) == (
        1,
        "denied: token:phone may not answer run/r-2: it has answerer on run/r-1\n",
    )
    given = invoke("access", "grant", "token:phone", "--verb", "answer", "--verb", "read", "--on", "run/r-2", "--json")
    grant = json.loads(given.stdout)
    assert (grant["principal"], grant["verbs"], grant["on"]) == ("token:phone", ["answer", "read"], "run/r-2")
    assert invoke("access", "check", "token:phone", "answer", "run/r-2").exit_code == 0
    listed = json.loads(invoke("access", "list", "token:phone", "--json").stdout)["grants"]
    assert [each["on"] for each in listed] == ["run/r-1", "run/r-2"]
    assert json.loads(invoke("access", "list", "--at", "1h", "--json").stdout)["grants"] == []
    assert invoke("access", "check", "token:phone", "read", "run/r-1", "--at", "1h").exit_code == 1
    assert "no more" in invoke("access", "revoke", grant["id"]).stdout
    assert invoke("access", "check", "token:phone", "answer", "run/r-2").exit_code == 1
    assert invoke("access", "revoke", listed[0]["id"]).exit_code == 3  # it is the token's own
    for wrong in (
        ["token:none", "--role", "viewer"],
        ["token:phone"],
        ["token:phone", "--role", "viewer", "--on", "x"],
    ):
        assert invoke("access", "grant", *wrong).exit_code in (2, 3)
