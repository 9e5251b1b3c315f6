"""Repeating an append safely: the key of a request.

When the reply to an append is lost (a killed process, a dropped connection), it is unknown whether it was written.
When the append is repeated under the same key, the journal returns the first reply and adds nothing. The same key for
another append is refused.

    first:  version 1, repeated False
    again:  version 1, repeated True
    other:  key 'invoice-2291' already belongs to a different append (use a new key for a new append)
    events in the stream: 1
    state:  version 2 and version 2, spent 30
"""

import asyncio
import sys

import maos

PATH = sys.argv[1] if len(sys.argv) > 1 else ":memory:"


async def main() -> None:
    async with maos.open(PATH, types=[maos.EventType("paid")]) as m:
        payment = maos.Event("paid", {"amount": 30})
        first = await m.journal.append("account/7", payment, key="invoice-2291")
        print(f"first:  version {first.version}, repeated {first.repeated}")
        again = await m.journal.append("account/7", payment, key="invoice-2291")
        print(f"again:  version {again.version}, repeated {again.repeated}")
        try:
            await m.journal.append("account/7", maos.Event("paid", {"amount": 99}), key="invoice-2291")
        except maos.KeyReused as error:
            print(f"other:  {error}")
        print(f"events in the stream: {await m.journal.version('account/7')}")

        # Updates of agents take keys too.
        await m.state.create("buyer", {"spent": 0})
        one = await m.state.update("buyer", {"spent": 30}, key="buyer-invoice-2291")
        two = await m.state.update("buyer", {"spent": 30}, key="buyer-invoice-2291")
        state = await m.state.get("buyer")
        print(f"state:  version {one.version} and version {two.version}, spent {state.data['spent']}")


asyncio.run(main())
