"""A scripted model: a loopback server that replaces the Anthropic, OpenAI and Gemini APIs.

Agent programs are tested against it without a model, a key or a network. It implements the Messages API
(`POST /v1/messages`), the Responses API (`POST /v1/responses`) and the Gemini API (`POST
/v1beta/models/NAME:generateContent`), streamed or not, and follows a script: a list of steps, one for each reply of the
model. The next step is derived from the conversation in the request, not counted by
the server, so a client that was killed and resumed continues where it was, even if the stub was restarted.
"""

from maos_testing.model_stub.conversation import END_TEXT
from maos_testing.model_stub.script import ScriptFault, ScriptStep, TokenCount, ToolCall, read_scripts
from maos_testing.model_stub.server import Asked, Charge, ModelStub

__all__ = [
    "END_TEXT", "Asked", "Charge", "ModelStub", "ScriptFault", "ScriptStep", "TokenCount", "ToolCall", "read_scripts",
]  # fmt: skip
