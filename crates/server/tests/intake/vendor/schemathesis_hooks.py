"""Proves each request as its sender would, once its body is known. Some are left as they were made up: those must be refused."""

import hashlib
import hmac
import os

import schemathesis
from requests.auth import AuthBase

SECRET = os.environ["INTAKE_SECRET"]


class Sender(AuthBase):
    def __call__(self, request):
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        if int(hashlib.sha256(body).hexdigest(), 16) % 4 == 0:
            return request
        if request.path_url.startswith("/in/signed"):
            digest = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
            request.headers["x-hub-signature-256"] = f"sha256={digest}"
        else:
            request.headers["authorization"] = f"Bearer {SECRET}"
        return request


@schemathesis.hook
def before_call(context, case, kwargs):
    kwargs["auth"] = Sender()
