"""Rules about what agents may do without a person being asked: how they are written, and which requests they cover.

A rule names a tool (`WebFetch`), a tool and a pattern of commands (`Bash(pytest *)`), or a tool and one exact command
(`Bash(=make test && git diff)`). Commands come from a model, and patterns are matched so that nothing else can hide in
a command: only one simple command, without anything that a shell would interpret, matches a pattern.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from maos.errors import InvalidInput
from maos.model.tool_request import AGENT as AGENT
from maos.model.tool_request import PROJECT as PROJECT
from maos.model.tool_request import RUN as RUN
from maos.model.tool_request import SCOPES as SCOPES
from maos.model.tool_request import SHELL as SHELL
from maos.model.tool_request import ToolRequest as ToolRequest
from maos.patterns import regex

TYPE = "type"
"""Where a rule is from that counts as long as an agent has its type, its task or its options."""
COMMAND_CHARS_MAX = 10_000
"""A longer command matches no pattern, and no rule is made of it."""

_TOOL = regex(r"[A-Za-z][A-Za-z0-9_.-]{0,127}", re.ASCII)
_RULE = regex(r"([^()]+?)(?:\((.*)\))?", re.DOTALL)
_SEPARATORS = frozenset(";&|()<>\n")
"""What ends one command of a shell, or begins another."""
_UNCLEAR = frozenset("$`\\{}!#")
"""What a shell replaces by something else, or what could hide what follows."""
_MCP = "mcp__"
_ASSIGNMENT = regex(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_NAME = regex(r"[\w.+-]+")
_GLOB = regex(r"[*?[]")

_BY_SECOND_WORD = frozenset(
    "bun cargo composer deno docker dotnet git go gradle hatch just make mix mvn nox npm npx pdm pnpm poetry rake rye "
    "swift tox uv yarn".split()
)
"""Programs whose second word says what they do."""
_NOT_SUGGESTED = frozenset(
    "bash chmod chown curl dd doas env eval exec find kill mv nc node perl php python python3 rm ruby sed sh ssh su "
    "sudo tee wget xargs zsh".split()
)
"""Programs for which no pattern is suggested: with any arguments they do anything."""


class PermissionRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule: the uses of a tool that are allowed, or refused."""

    tool: str
    command: str = ""
    """A pattern of commands, or the exact one; empty for every use of the tool."""
    exact: bool = False
    allow: bool = True

    def __str__(self) -> str:
        return f"{self.tool}({'=' if self.exact else ''}{self.command})" if self.command else self.tool

    def covers(self, asked: ToolRequest) -> bool:
        """Whether a request is one of these uses, beyond doubt."""
        if not self._names(asked.tool):
            return False
        if not self.command:
            return True
        if self.exact:
            return asked.command == self.command
        words = simple_command(asked.command)
        return words is not None and _match(simple_command(self.command) or (), words)

    def may_cover(self, asked: ToolRequest) -> bool:
        """Whether one of the commands in a request is one of these uses, or may be: it cannot be told."""
        if not self._names(asked.tool) or not self.command or self.exact:
            return self.covers(asked)
        found = _commands(asked.command)
        pattern = simple_command(self.command) or ()
        return not asked.command or found is None or any(_may_match(pattern, words) for words in found)

    def _names(self, tool: str) -> bool:
        is_server = self.tool.startswith(_MCP) and self.tool.count("__") == 1  # all tools of an MCP server
        return bool(tool) and (tool == self.tool or (is_server and tool.startswith(f"{self.tool}__")))


class StoredRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that counts, and where it is kept."""

    id: str
    rule: PermissionRule
    scope: str
    """agent, run or project; type for what an agent's type, task or options allow."""
    of: str
    """The agent, the run, or the folder of the project."""
    by: str = ""
    """The principal that made it."""
    at_us: int = 0


def parse(text: str, *, allow: bool = True, tool: str = "") -> PermissionRule:
    """The rule that a text is; `tool` is what it is about when the text is a pattern alone. InvalidInput for others."""
    given = text.strip()
    command: str | None
    found = _RULE.fullmatch(given)
    if tool and (found is None or found[2] is None) and given != tool:
        name, command = tool, given
    elif found is None:
        raise _invalid(text, "a rule is TOOL or TOOL(PATTERN), such as Bash(pytest *)")
    else:
        name, command = found[1].strip(), found[2]
    if not _TOOL.fullmatch(name):
        raise _invalid(text, f"{name!r} is no tool; a rule is TOOL or TOOL(PATTERN), such as Bash(pytest *)")
    if command is None:
        return PermissionRule(name, allow=allow)
    if command.startswith("="):
        return exactly(name, command[1:], allow=allow)
    command = re.sub(r":\*$", " *", command.strip())  # as Claude Code writes it
    words = simple_command(command)
    if not words:
        raise _invalid(text, "a pattern is one simple command, without ; & | < > $ ` \\ and the like")
    if "*" in words[0]:
        raise _invalid(text, f"the program cannot be a pattern; `{name}` alone stands for every use of the tool")
    return PermissionRule(name, command, allow=allow)


def rules_of(tools: Iterable[str]) -> list[PermissionRule]:
    """The rules among the tools that an agent may use without asking. Others are for the agent's program alone."""
    found = []
    for each in tools:
        try:
            found.append(parse(each))
        except InvalidInput:
            continue  # in the program's own form, such as Edit(/src/**)
    return found


def exactly(tool: str, command: str, *, allow: bool = True) -> PermissionRule:
    """The rule for one exact command."""
    is_text = not any("\ud800" <= char <= "\udfff" for char in command)
    if not command.strip() or len(command) > COMMAND_CHARS_MAX or not is_text:
        raise _invalid(f"{tool}(=…)", f"the command is text of 1 to {COMMAND_CHARS_MAX} characters")
    return PermissionRule(tool, command, exact=True, allow=allow)


def for_request(asked: ToolRequest, *, allow: bool, pattern: str = "") -> PermissionRule:
    """The rule that a person wants who answers a request with always or never: for exactly this command, for this tool
    if it runs none, or for a pattern. InvalidInput when it does not cover the request."""
    if not asked.tool:
        raise InvalidInput("no rule can name this tool", hint="answer yes or no")
    if pattern:
        rule = parse(pattern, allow=allow, tool=asked.tool)
        if not rule.covers(asked):
            raise InvalidInput(
                f"{rule} does not cover {asked.command or asked.tool!r}",
                hint="give a pattern that does; only one simple command, without ; & | < > $ and the like, matches one",
            )
        return rule
    if asked.command:
        return exactly(asked.tool, asked.command, allow=allow)
    if asked.tool == SHELL:
        raise InvalidInput(
            "its program does not say which command it is", hint=f"answer yes or no; --pattern {SHELL} stands for all"
        )
    return PermissionRule(asked.tool, allow=allow)


def suggestions(asked: ToolRequest, others: Iterable[str] = ()) -> tuple[str, ...]:
    """Patterns that cover a request and more; those of the agent's own program count only if they do."""
    found: list[str] = []
    words = simple_command(asked.command) if asked.command else None
    if words and (first := _beginning(words)):
        found.append(f"{asked.tool}({first} *)")
    for text in others:
        try:
            rule = parse(text)
        except InvalidInput:
            continue  # it is the program's own, and may mean something else
        if rule.command and rule.covers(asked):
            found.append(str(rule))
    return tuple(dict.fromkeys(found))


def decide(rules: Sequence[PermissionRule], asked: ToolRequest) -> PermissionRule | None:
    """The rule that answers a request; None when a person is asked.

    A rule that refuses comes first. Where it cannot be told whether one does, only a rule for exactly this command
    allows it.
    """
    for rule in rules:
        if not rule.allow and rule.covers(asked):
            return rule
    is_doubtful = any(not rule.allow and rule.may_cover(asked) for rule in rules)
    allowing = [rule for rule in rules if rule.allow and (rule.exact or not is_doubtful)]
    return next((rule for rule in allowing if rule.covers(asked)), None)


def simple_command(text: str) -> tuple[str, ...] | None:
    """The words of a text that is one simple command; None when a shell could take it for anything else.

    Quotation marks are understood. What is not printable, expansions, substitutions, redirections, lists, pipelines,
    comments and line ends are refused, also where they would do no harm.
    """
    found = _commands(text)
    is_plain = found is not None and len(found) == 1 and not _has_separators(text)
    return found[0] if found is not None and is_plain else None


def _commands(text: str) -> list[tuple[str, ...]] | None:
    """The commands in a text, each as its words, also those after a redirection; None when they cannot be told."""
    if len(text) > COMMAND_CHARS_MAX:
        return None
    parts = [""]
    for char, quote in _characters(text):
        if char in _UNCLEAR and quote != "'":
            return None
        if not char.isprintable() and (char != "\n" or quote):
            return None
        if char in _SEPARATORS and not quote:
            parts.append("")
        else:
            parts[-1] += char
    try:
        return [tuple(words) for part in parts if (words := shlex.split(part))]
    except ValueError:  # a quotation mark is open
        return None


def _has_separators(text: str) -> bool:
    return any(char in _SEPARATORS and not quote for char, quote in _characters(text))


def _characters(text: str) -> Iterator[tuple[str, str]]:
    """Each character with the quotation mark that is open before it."""
    quote = ""
    for char in text:
        yield char, quote
        if char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char


def _match(pattern: Sequence[str], words: Sequence[str]) -> bool:
    """Whether words are as a pattern says: a last `*` stands for any words, one within a word for any text of it."""
    if pattern and pattern[-1] == "*":
        pattern, words = pattern[:-1], words[: len(pattern) - 1]
    return len(pattern) == len(words) and all(map(_match_word, pattern, words))


def _may_match(pattern: Sequence[str], words: Sequence[str]) -> bool:
    """Whether a command is as a pattern says, or may come to that: behind a variable, another program or an option, by
    its path, or in a text that a shell reads."""
    if _match(pattern, words):
        return True
    program = next((each for each in words if not _ASSIGNMENT.match(each)), "")
    parts = (part for word in words for part in (word, *_NAME.findall(word)))
    wanted = [each for each in pattern if each != "*"]
    return bool(_GLOB.search(program)) or all(any(_match_word(each, part) for part in parts) for each in wanted)


def _match_word(pattern: str, word: str) -> bool:
    if "*" not in pattern:
        return pattern == word
    form = "(.*)".join(map(re.escape, pattern.split("*")))
    found = re.fullmatch(form, word, re.DOTALL)
    return found is not None and not any(map(_leads_up, word.split("/")))


def _leads_up(part: str) -> bool:
    """Whether a part of a path is the folder above, or a shell may make that of it: `.?` matches `..`."""
    return part == ".." or (part.startswith(".") and _GLOB.search(part) is not None)


def _beginning(words: Sequence[str]) -> str:
    """The words of a command that say what it does; empty when that depends on all of them."""
    count = 2 if words[0] in _BY_SECOND_WORD else 1
    if words[0] in ("python", "python3") and words[1:2] == ("-m",):
        count = 3
    elif words[0] in _NOT_SUGGESTED:
        return ""
    if words[0] in ("npm", "pnpm", "yarn", "bun", "uv", "poetry", "pdm", "hatch", "rye") and words[1:2] == ("run",):
        count = 3
    first = words[:count]
    if len(first) < count or any(each.startswith("-") and each != "-m" for each in first) or "*" in "".join(first):
        return ""
    return shlex.join(first)


def _invalid(text: str, hint: str) -> InvalidInput:
    return InvalidInput(f"{text!r:.200} is not a rule", hint=hint)
