"""Runs simple-salesforce against a running simulator and prints the results as one JSON object.

SIM_URL is the URL of the simulator, SIM_TOKEN a valid token.
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
    """simple-salesforce always builds https URLs; the simulator uses plain http."""

    def send(self, request, **options):
        request.url = request.url.replace("https://", "http://", 1)
        return super().send(request, **options)


def control(path, body=None):
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

results = {}
results["create"] = sf.Lead.create({**LEAD, "External_Lead_Id__c": "py-1"})
results["upsert_new"] = sf.Lead.upsert("External_Lead_Id__c/py-2", LEAD)
results["upsert_again"] = sf.Lead.upsert("External_Lead_Id__c/py-2", {"FirstName": "Lwazi"})
results["read"] = sf.Lead.get_by_custom_id("External_Lead_Id__c", "py-2")
results["update"] = sf.Lead.update(results["create"]["id"], {"Title": "CTO"})
results["query"] = sf.query("SELECT Id, Title FROM Lead WHERE External_Lead_Id__c = 'py-1'")
results["usage"] = sf.api_usage
results["update_only"] = failure(lambda: sf.Lead.upsert("External_Lead_Id__c/absent?updateOnly=true", LEAD))
results["unknown_field"] = failure(lambda: sf.Lead.create({**LEAD, "Nope__c": 1}))

for _ in range(2):
    sf.Lead.create({**LEAD, "Legacy_Id__c": "py-many"})
results["several"] = failure(lambda: sf.Lead.upsert("Legacy_Id__c/py-many", LEAD))

control("faults", {"script": [{"times": 1, "fault": {"kind": "lock_row"}}]})
results["lock"] = failure(lambda: sf.Lead.upsert("External_Lead_Id__c/py-2", LEAD))

results["delete"] = sf.Lead.delete(results["create"]["id"])
control("expire-tokens")
results["expired"] = failure(lambda: sf.Lead.upsert("External_Lead_Id__c/py-2", LEAD))
print(json.dumps(results))
