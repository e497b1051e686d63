"""Drives simple-salesforce against a running simulator and prints what it saw, as one JSON object.

SIM_URL is the simulator, SIM_TOKEN a valid token.
"""

import json
import os
import urllib.request

import requests
from requests.adapters import HTTPAdapter
from simple_salesforce import Salesforce
from simple_salesforce.exceptions import SalesforceError

URL = os.environ["SIM_URL"]
LEAD = {"LastName": "Nkosi", "Company": "Kraal"}


class PlainHttp(HTTPAdapter):
    """The client always builds https addresses; the simulator speaks plain http."""

    def send(self, request, **options):
        request.url = request.url.replace("https://", "http://", 1)
        return super().send(request, **options)


def order(path, body=None):
    request = urllib.request.Request(f"{URL}/sim/{path}", method="POST", data=json.dumps(body).encode())
    urllib.request.urlopen(request, timeout=10).close()


def failure(call):
    try:
        call()
    except SalesforceError as error:
        content = error.content
        code = content[0].get("errorCode") if isinstance(content[0], dict) else None
        return {"type": type(error).__name__, "status": error.status, "code": code, "content": content}
    return {"type": None}


session = requests.Session()
session.trust_env = False
secure = URL.replace("http://", "https://", 1)
session.mount(secure, PlainHttp())
sf = Salesforce(instance_url=secure, session_id=os.environ["SIM_TOKEN"], version="60.0", session=session)

seen = {}
seen["create"] = sf.Lead.create({**LEAD, "External_Lead_Id__c": "py-1"})
seen["upsert_new"] = sf.Lead.upsert("External_Lead_Id__c/py-2", LEAD)
seen["upsert_again"] = sf.Lead.upsert("External_Lead_Id__c/py-2", {"FirstName": "Lwazi"})
seen["read"] = sf.Lead.get_by_custom_id("External_Lead_Id__c", "py-2")
seen["update"] = sf.Lead.update(seen["create"]["id"], {"Title": "CTO"})
seen["query"] = sf.query("SELECT Id, Title FROM Lead WHERE External_Lead_Id__c = 'py-1'")
seen["usage"] = sf.api_usage
seen["update_only"] = failure(lambda: sf.Lead.upsert("External_Lead_Id__c/absent?updateOnly=true", LEAD))
seen["unknown_field"] = failure(lambda: sf.Lead.create({**LEAD, "Nope__c": 1}))

for _ in range(2):
    sf.Lead.create({**LEAD, "Legacy_Id__c": "py-many"})
seen["several"] = failure(lambda: sf.Lead.upsert("Legacy_Id__c/py-many", LEAD))

order("faults", {"script": [{"times": 1, "fault": {"kind": "lock_row"}}]})
seen["lock"] = failure(lambda: sf.Lead.upsert("External_Lead_Id__c/py-2", LEAD))

seen["delete"] = sf.Lead.delete(seen["create"]["id"])
order("expire-tokens")
seen["expired"] = failure(lambda: sf.Lead.upsert("External_Lead_Id__c/py-2", LEAD))
print(json.dumps(seen))
