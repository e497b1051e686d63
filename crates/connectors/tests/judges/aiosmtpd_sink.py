"""A mail server that Sluice's authors did not write. Prints its port, then each message as Python's email package reads it."""

import email
import email.policy
import json
import socket
import sys
import threading

from aiosmtpd.controller import Controller


def say(value):
    print(json.dumps(value), flush=True)


class Sink:
    async def handle_DATA(self, server, session, envelope):
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        part = lambda kind: (message.get_body((kind,)) or message).get_content() if message.get_body((kind,)) else None
        say(
            {
                "from": envelope.mail_from,
                "to": envelope.rcpt_tos,
                "headers": {name.lower(): str(value) for name, value in message.items()},
                "text": part("plain"),
                "html": part("html"),
                "defects": [str(defect) for defect in message.defects],
            }
        )
        return "250 2.0.0 taken"


with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
controller = Controller(Sink(), hostname="127.0.0.1", port=port)
controller.start()
say({"port": port})
# Ends when whoever started it does.
sys.stdin.read()
controller.stop()
