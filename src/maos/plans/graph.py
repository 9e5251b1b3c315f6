"""A plan as a picture: in the columns of a terminal, or as SVG."""

from __future__ import annotations

from html import escape

from maos.model.plan import Gate, Plan, Task, batches

COLUMN_PX, ROW_PX, BOX_PX, HEIGHT_PX, MARGIN_PX, CHAR_PX = 40, 64, 120, 44, 20, 7.2
NAME_CHARS_MAX = 24


def lines(plan: Plan) -> list[str]:
    """The plan as text: steps by when they can begin, with what each needs and what it is."""
    tasks = {task.name: task for task in plan.tasks}
    found: list[str] = []
    for number, names in enumerate(batches(plan), 1):
        for index, name in enumerate(names):
            task = tasks[name]
            needs = f"  ← {', '.join(task.needs)}" if task.needs else ""
            gates = "".join(f"  ◆ {_gate(each)}" for each in task.gates)
            mark = f"{number}" if index == 0 else " "
            stem = "─" if len(names) == 1 else "┬" if index == 0 else "└" if index == len(names) - 1 else "├"
            found.append(f"{mark:>2} {stem}─ {name}{needs}{gates}")
    return found


def svg(plan: Plan) -> str:
    """The plan as SVG: columns are steps that can run together, lines lead to those that need them."""
    columns = batches(plan)
    tasks = {task.name: task for task in plan.tasks}
    width_px = [max(BOX_PX, max(len(_short(name)) for name in names) * CHAR_PX + 24) for names in columns]
    left = [MARGIN_PX + sum(width_px[:index]) + index * COLUMN_PX for index in range(len(columns))]
    rows_max = max(map(len, columns))
    place = {}
    for index, names in enumerate(columns):
        top = MARGIN_PX + (rows_max - len(names)) * ROW_PX / 2
        for row, name in enumerate(names):
            place[name] = (left[index], top + row * ROW_PX, width_px[index])
    whole = (left[-1] + width_px[-1] + MARGIN_PX, 2 * MARGIN_PX + rows_max * ROW_PX - (ROW_PX - HEIGHT_PX))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole[0]:.0f}" height="{whole[1]:.0f}" '
        f'viewBox="0 0 {whole[0]:.0f} {whole[1]:.0f}" font-family="system-ui, sans-serif" font-size="12">',
        f"<title>{escape(plan.request)}</title>",
    ]
    for task in plan.tasks:
        parts += [_line(place[need], place[task.name]) for need in task.needs]
    parts += [_box(tasks[name], *place[name]) for name in place]
    return "\n".join([*parts, "</svg>", ""])


def _line(start: tuple[float, float, float], end: tuple[float, float, float]) -> str:
    x1, y1 = start[0] + start[2], start[1] + HEIGHT_PX / 2
    x2, y2 = end[0], end[1] + HEIGHT_PX / 2
    bend = max(COLUMN_PX / 2, (x2 - x1) / 2)
    way = f"M{x1:.0f},{y1:.0f} C{x1 + bend:.0f},{y1:.0f} {x2 - bend:.0f},{y2:.0f} {x2:.0f},{y2:.0f}"
    return f'<path d="{way}" fill="none" stroke="#8a94a6" stroke-width="1.5"/>'


def _box(task: Task, x: float, y: float, width: float) -> str:
    what = task.kind or (task.agent or "agent" if task.task else "command")
    gates = f" · {len(task.gates)} gate{'s' if len(task.gates) > 1 else ''}" if task.gates else ""
    return (
        f"<g><title>{escape(task.task or ' '.join(task.command))}</title>"
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{HEIGHT_PX}" rx="8" fill="#f5f7fb" '
        f'stroke="#3b5bdb" stroke-width="1.2"/>'
        f'<text x="{x + 12:.0f}" y="{y + 19:.0f}" font-weight="600" fill="#1b1f29">{escape(_short(task.name))}</text>'
        f'<text x="{x + 12:.0f}" y="{y + 35:.0f}" font-size="10.5" fill="#5a6476">{escape(what + gates)}</text></g>'
    )


def _gate(gate: Gate) -> str:
    return "command" if gate.command else "person" if gate.person else "review"


def _short(name: str) -> str:
    return name if len(name) <= NAME_CHARS_MAX else name[: NAME_CHARS_MAX - 1] + "…"
