"""Third-party SMTP server (aiosmtpd). Prints its port, then each message as parsed by Python's email package."""

import email
import email.policy
import json
import socket
import sys
import threading

from aiosmtpd.controller import Controller


def emit(value):
    print(json.dumps(value), flush=True)


class Sink:
    async def handle_DATA(self, server, session, envelope):
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        part = lambda kind: (message.get_body((kind,)) or message).get_content() if message.get_body((kind,)) else None
        emit(
            {
                "from": envelope.mail_from,
                "to": envelope.rcpt_tos,
                "headers": {name.lower(): str(value) for name, value in message.items()},
                "text": part("plain"),
                "html": part("html"),
                "defects": [str(defect) for defect in message.defects],
            }
        )
        return "250 2.0.0 accepted"


with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
controller = Controller(Sink(), hostname="127.0.0.1", port=port)
controller.start()
emit({"port": port})
# Stops when the parent process closes the pipe.
sys.stdin.read()
controller.stop()
