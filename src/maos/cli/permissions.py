"""`maos permission`: rules of what agents may do without asking; and how an answer is printed that made one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import commands, documents, render
from maos.cli.commands import LazyGroup, dry_run_option, json_command
from maos.cli.database import DatabaseTarget
from maos.cli.render import Column, Listing, clean
from maos.errors import InvalidInput
from maos.ids import AGENT

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.permission import StoredRule
    from maos.views.questions import Given

WHOSE = {"agent": "the agent", "run": "all agents of", "project": "all agents that you run in"}


def _document(each: StoredRule) -> documents.Document:
    return {
        **documents.of(each, "id", "scope", "of", "by"),
        "rule": str(each.rule),
        "allow": each.rule.allow,
        **documents.time(each.at_us or None),
    }


RULES: Listing[StoredRule] = Listing(
    "rules",
    (
        Column("id", lambda each: each.id, style="bold"),
        Column("answer", lambda each: "allow" if each.rule.allow else "refuse"),
        Column("rule", lambda each: str(each.rule), yields=3),
        Column("for", lambda each: f"{each.scope} {each.of}", yields=2),
        Column("by", lambda each: each.by, style="dim", yields=1),
        Column("since", lambda each: render.when(each.at_us) if each.at_us else "", style="dim"),
    ),
    empty="no rules; answer a permission with always, or `maos permission add RULE`",
    of=_document,
)


@click.group(
    cls=LazyGroup,
    lazy={
        "list": ("maos.cli.permissions:list_", "List the rules."),
        "add": ("maos.cli.permissions:add", "Add a rule for a project, a run or an agent."),
        "revoke": ("maos.cli.permissions:revoke", "Revoke a rule: what it covers is asked again."),
    },
    examples=[
        "maos permission list",
        "maos permission add 'Bash(pytest *)'",
        "maos permission revoke rule-3fa2c1",
    ],
)
def permission() -> None:
    """List, add and revoke rules of what agents may do."""


@json_command("maos permission list", "maos permission list --json")
def list_(database: DatabaseTarget, as_json: bool) -> None:
    """List the rules.

    Rules for runs and agents are in the database; those for projects are in permissions.toml of your state folder. What
    the types of agents may do is not listed: `maos status RUN --json` has it.
    """
    found = database.write(lambda m: m.permissions.list(), dry_run=True)  # it needs no database
    RULES.show(list(found), as_json=as_json)


@json_command(
    "maos permission add 'Bash(pytest *)'",
    "maos permission add 'Bash(npm test)' --project ../shop",
    "maos permission add WebFetch --run r-1a2b3c",
    "maos permission add 'Bash(git push *)' --deny --json",
)
@click.argument("rule", metavar="RULE")
@click.option("--project", type=click.Path(exists=True, file_okay=False), default=".", metavar="FOLDER",
              show_default=True, help="For all agents that you run in the project of a folder.")  # fmt: skip
@click.option("--run", metavar="ID", shell_complete=commands.complete_runs, help="For all agents of a run, instead.")
@click.option("--agent", metavar="NAME", shell_complete=commands.complete_agents,
              help="For one agent (RUN/TASK), instead.")  # fmt: skip
@click.option("--deny", is_flag=True, help="Refuse what it covers, instead of allowing it.")
def add(
    database: DatabaseTarget, rule: str, project: str, run: str | None, agent: str | None, deny: bool, as_json: bool
) -> None:
    """Add a rule for a project, a run or an agent.

    RULE is a tool (WebFetch), a tool and a pattern of commands (Bash(pytest *)), or a tool and one exact command
    (Bash(=make test && git diff)). A last * stands for any words, one within a word for any text of that word. Only one
    simple command matches a pattern: nothing with ; & | < > $ or a line end does.
    """
    if run and agent:
        raise InvalidInput("a rule is for a run or for an agent", hint="give one of --run and --agent")

    async def work(m: Maos) -> StoredRule:
        scope, of = ("run", run) if run else ("project", project)
        if agent:
            scope, of = "agent", (await m.ids.find(agent, AGENT)).id
        return await m.permissions.add(rule, scope=scope, of=of or "", allow=not deny)

    made = database.write(work, dry_run=not (run or agent))  # a rule for a project is in no database
    verb = "allows" if made.rule.allow else "refuses"
    said = f" {verb} {clean(str(made.rule))} to {WHOSE[made.scope]} {clean(made.of)}"
    render.show(_document(made), (made.id, "bold"), said, as_json=as_json)


@json_command("maos permission revoke rule-3fa2c1", "maos permission revoke rule-3f --dry-run --json")
@click.argument("id", metavar="ID")
@dry_run_option
def revoke(database: DatabaseTarget, id: str, dry_run: bool, as_json: bool) -> None:
    """Revoke a rule: what it covers is asked again.

    ID is one that `maos permission list` shows, or a unique prefix. Answers that were given by the rule stay as they
    are.
    """
    found = database.write(lambda m: m.permissions.revoke(id, dry_run=dry_run), dry_run=dry_run or not database.exists)
    said = f" {'would be' if dry_run else 'is'} revoked: {clean(str(found.rule))}"
    render.show({**_document(found), "dry_run": dry_run}, (found.id, "bold"), said, as_json=as_json)


def show_given(given: Given, *, as_json: bool) -> None:
    """Print an answer that was recorded, and the rule that was made with it."""
    ref, rule = given.question.ref, given.rule
    found = {
        "id": ref,
        "answer": given.answer,
        "by": given.by,
        "requests": given.requests,
        "rule": None if rule is None else _document(rule),
        "running": given.running,
        "resumable": given.resumable or None,
    }
    others = f" ({given.requests} requests)" if given.requests > 1 else ""
    render.show(found, (clean(ref), "bold"), f" is answered: {clean(given.answer)}{others}", as_json=as_json)
    if as_json:
        return
    if rule is not None:
        verb = "allows" if rule.rule.allow else "refuses"
        render.line((rule.id, "bold"), f" {verb} {clean(str(rule.rule))} to {WHOSE[rule.scope]} {clean(rule.of)}")
        render.line(("to revoke it: ", "dim"), f"maos permission revoke {rule.id}")
    if given.resumable:
        render.line("no engine runs it; to resume: ", (given.resumable, "bold"))
