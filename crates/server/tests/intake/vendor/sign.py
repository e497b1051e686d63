"""Signs one request for each vendor whose own library can, and prints them as JSON."""

import json
import os
import time
from datetime import datetime, timezone

import stripe
from slack_sdk.signature import SignatureVerifier
from standardwebhooks.webhooks import Webhook as Standard
from svix.webhooks import Webhook as Svix
from twilio.request_validator import RequestValidator

SECRET = os.environ["PLAIN_SECRET"]
WHSEC = os.environ["WHSEC_SECRET"]
URL = os.environ["PUBLIC_URL"]

now = int(time.time())
moment = datetime.now(tz=timezone.utc)
requests = []


def request(scheme, headers, body, content_type="application/json"):
    requests.append({"scheme": scheme, "headers": {**headers, "content-type": content_type}, "body": body})


body = json.dumps({"id": "evt_py", "type": "invoice.paid", "created": now, "name": "Zo\u00eb"})
digest = stripe.WebhookSignature._compute_signature(f"{now}.{body}", SECRET)
stripe.Webhook.construct_event(body, f"t={now},v1={digest}", SECRET)
request("stripe", {"stripe-signature": f"t={now},v1={digest}"}, body)

body = json.dumps({"type": "contact.created", "timestamp": moment.isoformat(), "data": {"id": 1}})
for scheme, library, family in [("svix", Svix, "svix"), ("standard-webhooks", Standard, "webhook")]:
    signature = library(WHSEC).sign("msg_py", moment, body)
    stamp = str(int(moment.timestamp()))
    request(scheme, {f"{family}-id": "msg_py", f"{family}-timestamp": stamp, f"{family}-signature": signature}, body)

body = json.dumps({"type": "event_callback", "event_id": "Ev_py", "event_time": now, "event": {}})
signature = SignatureVerifier(SECRET).generate_signature(timestamp=str(now), body=body)
request("slack", {"x-slack-signature": signature, "x-slack-request-timestamp": str(now)}, body)

form = {"MessageSid": "SM_py", "MessageStatus": "delivered", "Body": "a b&c"}
signature = RequestValidator(SECRET).compute_signature(URL, form)
encoded = "MessageSid=SM_py&MessageStatus=delivered&Body=a+b%26c"
request("twilio", {"x-twilio-signature": signature}, encoded, "application/x-www-form-urlencoded")

print(json.dumps(requests))
