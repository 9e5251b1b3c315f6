"""The sample repository of the demonstration, the plan for it, and the words its agents exchange."""

from __future__ import annotations

import json

REQUEST = "Document the till, test it, and decide how it rounds"

INVENTORY = "docs/inventory.md"
NO_DOCSTRING = "no docstring: "
UNDECIDED = "undecided: "
ALL_FOUND = "that is all: "
UNTESTED = "untested: "
WHO_CALLS = "who calls "
CALLED_FROM = " is called from "
RULE = "the rule is: "
TESTED = "tested: "

QUESTION = "Which way does the till round half a cent?"
UNDECIDED_CODE = """\
    # TODO: which way does half a cent go?
    return cents * percent // 100
"""
ROUNDING = {
    "half up": "    return (cents * percent + 50) // 100\n",
    "half to even": "    return round(cents * percent / 100)\n",
}
"""What a person may answer, and the code it leads to."""
ANSWER = "half up"

FILES = {
    ".gitignore": "__pycache__/\n",
    "README.md": "# Till\n\nA till for a small shop. It counts in cents.\n",
    "till/__init__.py": "",
    "till/money.py": f'''\
"""Money, in cents."""


def share(cents, percent):
{UNDECIDED_CODE}

def with_tax(cents, percent):
    return cents + share(cents, percent)


def discounted(cents, percent):
    return cents - share(cents, percent)


def shown(cents):
    """An amount as people write it."""
    return f"{{cents // 100}}.{{cents % 100:02}}"
''',
    "till/basket.py": '''\
"""A basket: what a customer wants to buy."""

from till.money import discounted


def added(basket, name, cents, count=1):
    """The basket with one more kind of thing in it."""
    return [*basket, (name, cents, count)]


def total(basket):
    return sum(cents * count for _name, cents, count in basket)


def total_for_members(basket):
    return discounted(total(basket), 10)


def dearest(basket):
    return max(basket, key=lambda each: each[1])[0]
''',
    "tests/__init__.py": "",
}
"""The repository as its user left it."""


def _test(name: str, *cases: tuple[str, str, str]) -> str:
    """A file of tests: what each is called, what it looks at, and what that should be."""
    module = "money" if name == "rounding" else name
    tests = "\n".join(
        f"    def test_{called}(self):\n        self.assertEqual({looked_at}, {wanted})\n"
        for called, looked_at, wanted in cases
    )
    return f"import unittest\n\nfrom till import {module}\n\n\nclass {name.capitalize()}(unittest.TestCase):\n{tests}"


_BASKET = "[('tea', 250, 2), ('cup', 900, 1)]"

TESTS = {
    "tests/test_money.py": _test(
        "money",
        ("tax_is_added", "money.with_tax(1000, 20)", "1200"),
        ("a_discount_is_taken_off", "money.discounted(1000, 10)", "900"),
        ("no_discount_changes_nothing", "money.discounted(999, 0)", "999"),
        ("an_amount_is_shown_with_two_places", "money.shown(1205)", "'12.05'"),
        ("little_money_is_shown_too", "money.shown(7)", "'0.07'"),
    ),
    "tests/test_basket.py": _test(
        "basket",
        ("an_empty_one_costs_nothing", "basket.total([])", "0"),
        ("counts_are_multiplied", f"basket.total({_BASKET})", "1400"),
        ("members_pay_less", f"basket.total_for_members({_BASKET})", "1260"),
        ("the_dearest_is_found", f"basket.dearest({_BASKET})", "'cup'"),
        ("adding_leaves_the_old_one_alone", "basket.added([], 'tea', 250)", "[('tea', 250, 1)]"),
    ),
}
"""What the tester writes before it knows the rule."""


def rounding_test(rule: str) -> str:
    """The test for the rule that was chosen."""
    half = "51" if rule == "half up" else "50"
    return _test(
        "rounding",
        ("half_a_cent", "money.share(101, 50)", half),
        ("less_than_half", "money.share(101, 49)", "49"),
        ("more_than_half", "money.share(101, 51)", "52"),
    )


ROLES = {
    "analyst": "List every function of the till, and tell the others what is wrong with them",
    "developer": "Document the functions, find out how to round, and change the code",
    "tester": "Write tests for every part of the till",
}
TIME_LIMIT_S = 120


def plan(python: str, notes: str, pause_s: float) -> str:
    """The plan, as a TOML file: one task for each agent, all at the same time."""
    tasks = [f"request = {json.dumps(REQUEST)}\n"]
    for name, task in ROLES.items():
        command = [python, "-P", "-m", "maos_demo.agents", name, f"{notes}/{name}.jsonl", str(pause_s)]
        tasks.append(
            f"[[tasks]]\nname = {json.dumps(name)}\ntask = {json.dumps(task)}\n"
            f"command = {json.dumps(command)}\nmcp = true\ntime_limit_s = {TIME_LIMIT_S}\n"
        )
    return "\n".join(tasks)
