"""What a browser needs before the page: signing in and out, and links that answer one question.

These are plain forms without scripts. A link does nothing when it is opened, so that a program that looks at links in
messages uses up none: a person presses a button.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from urllib.parse import parse_qsl

from starlette.responses import HTMLResponse, RedirectResponse, Response

from maos.errors import InvalidInput, MaosError, NotFound
from maos.model.access import CredentialKind
from maos.model.question import Open
from maos.patterns import regex
from maos.web.api import Call, encode
from maos.web.conversion import identity_of, question_infos
from maos.web.guard import COOKIE, FORM

STYLE = "/sign-in.css"
CSS = """
:root {
  color-scheme: light dark; font: 16px/1.5 Inter, system-ui, -apple-system, "Segoe UI", sans-serif;
  --paper: #f8f7f4; --surface: #fff; --sunken: #f1efea; --line: #e4e0d8; --ink: #1c1a17; --ink-2: #504b44;
  --accent: #1f58c7; --accent-ink: #fff;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #101113; --surface: #17191c; --sunken: #1e2125; --line: #2a2e33; --ink: #edebe7; --ink-2: #b9b5ad;
    --accent: #86b1ff; --accent-ink: #0c1a33;
  }
}
* { box-sizing: border-box; }
body { margin: 0; min-height: 100vh; padding: 12vh 16px 32px; background: var(--paper); color: var(--ink); }
main {
  max-width: 460px; margin: 0 auto; padding: 28px; border: 1px solid var(--line); border-radius: 14px;
  background: var(--surface);
}
.brand { display: flex; align-items: center; gap: 9px; margin-bottom: 20px; font-weight: 680; letter-spacing: -0.03em; }
h1 { margin: 0 0 8px; font-size: 22px; line-height: 1.25; letter-spacing: -0.02em; overflow-wrap: anywhere; }
p { margin: 0 0 16px; color: var(--ink-2); overflow-wrap: anywhere; }
p:last-child { margin: 0; }
strong { color: var(--ink); }
form { display: grid; gap: 10px; }
button, input {
  width: 100%; min-height: 48px; padding: 10px 16px; border: 1px solid var(--line); border-radius: 9px;
  background: var(--surface); color: var(--ink); font: inherit;
}
button { text-align: left; cursor: pointer; font-weight: 600; }
button:hover { border-color: var(--accent); }
button.primary { border-color: var(--accent); background: var(--accent); color: var(--accent-ink); }
button.center { text-align: center; }
small { display: block; font-size: 14px; font-weight: 400; opacity: 0.9; }
pre, code { font: 14px/1.5 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
pre {
  margin: 0 0 16px; max-height: 40vh; overflow: auto; padding: 12px; border-radius: 9px; background: var(--sunken);
  white-space: pre-wrap; overflow-wrap: anywhere;
}
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
@media (max-width: 520px) { body { padding-top: 24px; } main { padding: 20px; } }
"""
CONTEXT_CHARS_MAX = 4_000
PRIMARY = " class='primary'"
ANSWERS: Mapping[str, Sequence[tuple[str, str, str]]] = {
    "gate": (("yes", "Accept", "The task is done, and tasks that need it can start."),
             ("no", "Send back", "The agent works on it again.")),
    "permission": (("yes", "Allow once", "The agent uses the tool now, and asks again the next time."),
                   ("no", "Deny once", "The agent is told no, and continues without it.")),
    "plan": (("yes", "Approve", "The tasks of the plan start."), ("no", "Reject", "The plan is dropped.")),
}  # fmt: skip
"""What can be answered to a question of a kind: the answer, its button, and what it does."""
_VIEW = regex(r"[A-Za-z0-9_./-]{1,200}")
"""A view of the page, such as run/r-1a2b3c: it is put behind the "#" of the page's own address."""


async def show_style(_call: Call) -> Response:
    """The style sheet of these pages."""
    return Response(CSS, media_type="text/css")


async def show_sign_in(call: Call) -> Response:
    """Ask to press a button: only then the code of the link is used up."""
    code = escape(call.query.code, quote=True)
    if not code:
        return _page("Sign in", "<p>Open the link that <code>maos serve</code> has printed, or print another one with "
                     "<code>maos token link</code>.</p>", 401)  # fmt: skip
    fields = f"<input type='hidden' name='code' value='{code}'>"
    fields += f"<input type='hidden' name='to' value='{escape(call.query.to, quote=True)}'>"
    about = "This browser stays signed in for 30 days. The link works once."
    return _page("Sign in", f"<p>{about}</p><form method='post' action='/sign-in'>"
                 f"{fields}<button class='primary center' autofocus>Sign in</button></form>")  # fmt: skip


async def sign_in(call: Call) -> Response:
    """Exchange the code of a form for a session, whose cookie no script can read."""
    form = await _form(call)
    try:
        session, secret = await call.m.access.sign_in(form.get("code", ""))
    except MaosError as error:
        return _page("Not signed in", f"<p>{escape(error.what)}. The link was used, or is too old. Print another one "
                     "with <code>maos token link</code>.</p>", 401)  # fmt: skip
    to = form.get("to", "")
    response = RedirectResponse(f"/#/{to}" if _VIEW.fullmatch(to) else "/", 303)
    _set_cookie(call, response, secret, session.expires_us)
    return response


async def open_session(call: Call) -> Response:
    """Exchange the code of a sign-in link for a session: sets a cookie that no script can read."""
    session, secret = await call.m.access.sign_in(call.body.code)
    identity = identity_of(session, await call.m.access.verbs(session.principal))
    response = Response(encode(identity), 200, media_type="application/json")
    _set_cookie(call, response, secret, session.expires_us)
    return response


async def sign_out(call: Call) -> Response:
    """Revoke the session of the caller."""
    if call.credential is not None and call.credential.kind is CredentialKind.SESSION:
        await call.m.access.revoke(call.credential.id)
    response = RedirectResponse("/sign-in", 303)
    response.delete_cookie(COOKIE, path="/")
    return response


# --- links that answer -------------------------------------------------------------------------------------------


async def show_answer(call: Call) -> Response:
    """Show the question of a link, and a button for each answer."""
    code = call.query.code
    try:
        offered = await call.m.access.authenticate(code, CredentialKind.ANSWER)
        question = await _asked(call, offered.question)
    except MaosError as error:
        return _gone(error)
    [info] = await question_infos(call.m, [question])
    meanings = (*question.meanings, *([""] * len(question.choices)))
    chosen = [(each, each, does) for each, does in zip(question.choices, meanings, strict=False)]
    buttons = "".join(
        f"<button name='answer' value='{escape(said, quote=True)}'{PRIMARY if said == 'yes' else ''}>{escape(label)}"
        f"<small>{escape(does)}</small></button>"
        for said, label, does in ANSWERS.get(question.kind) or chosen
    )
    given = buttons or f"<input name='answer' aria-label='Answer' required><button{PRIMARY}>Answer</button>"
    context = "\n\n".join(str(each) for each in (question.context, question.tool, question.input) if each)
    shown = f"<pre>{escape(context[:CONTEXT_CHARS_MAX])}</pre>" if context else ""
    code = f"<input type='hidden' name='code' value='{escape(code, quote=True)}'>"
    asks = " · ".join(each for each in (", ".join(question.asked_by) or question.owner, info.about) if each)
    return _page(question.text or f"May it use {question.tool}?", f"<p><small>{escape(asks)}</small></p>"
                 f"{shown}<form method='post' action='/answer'>{code}{given}</form>")  # fmt: skip


async def give_answer(call: Call) -> Response:
    """Answer the question of a link, which does not work any more then."""
    form = await _form(call)
    try:
        offered = await call.m.access.authenticate(form.get("code", ""), CredentialKind.ANSWER)
        question = await _asked(call, offered.question)
        answerer = call.server.m.acting_for(offered.principal)
        try:
            # The question takes one answer, so the code is used up after it: a server that is killed in between leaves
            # a link to a question that is answered, and an answer that is refused can be given again.
            given = await answerer.questions.give(question, form.get("answer", ""))
            await answerer.access.use(form["code"])
        finally:
            await answerer.close()
    except MaosError as error:
        return _gone(error)
    return _page("Answered", f"<p>{escape(question.text)}</p><p><strong>{escape(given.answer)}</strong></p>")


async def _asked(call: Call, ref: str) -> Open:
    found = [each for each in await call.m.questions.open() if each.ref == ref]
    if not found:
        raise NotFound("the question was answered already", hint="nothing is to be done")
    return found[0]


# --- inside ------------------------------------------------------------------------------------------------------


async def _form(call: Call) -> dict[str, str]:
    kind = call.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    raw = await call.request.body()
    if kind != FORM:
        raise InvalidInput("this takes a form", hint=f"send {FORM}")
    try:
        return dict(parse_qsl(raw.decode("ascii"), strict_parsing=bool(raw), max_num_fields=10))
    except ValueError:
        raise InvalidInput("the form is not valid", hint="open the link again") from None


def _set_cookie(call: Call, response: Response, secret: str, expires_us: int) -> None:
    age_s = max(0, (expires_us - call.m.clock.now_us()) // 1_000_000)
    is_secure = call.server.site.is_secure
    response.set_cookie(COOKIE, secret, max_age=age_s, path="/", secure=is_secure, httponly=True, samesite="strict")


def _gone(error: MaosError) -> Response:
    status = 400 if isinstance(error, InvalidInput) else 410
    return _page("Not answered", f"<p>{escape(error.what)}.</p>", status)


def _page(title: str, body: str, status: int = 200) -> Response:
    head = f"<meta charset='utf-8'><meta name='viewport' content='width=device-width'><title>{escape(title)}</title>"
    style = f"<link rel='stylesheet' href='{STYLE}'>"
    brand = "<div class='brand'><img src='/page/icon.svg' alt='' width='24' height='24'>maos</div>"
    return HTMLResponse(f"<!doctype html><html lang='en'><head>{head}{style}</head><body><main>{brand}"
                        f"<h1>{escape(title)}</h1>{body}</main></body></html>", status)  # fmt: skip
