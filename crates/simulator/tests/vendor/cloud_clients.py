"""Clients of Amazon and Google against the simulators. Prints the results as JSON."""

import json
import os

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth.transport.requests import AuthorizedSession
from google.oauth2 import service_account


def aws(service, url):
    return boto3.client(
        service,
        endpoint_url=url,
        region_name="eu-central-1",
        aws_access_key_id="AKID",
        aws_secret_access_key="secret",
        config=Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"}),
    )


def refusal(call):
    try:
        call()
    except ClientError as error:
        return [error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]]
    return None


def s3():
    client = aws("s3", os.environ["S3_URL"])

    def put(body, **more):
        return client.put_object(
            Bucket="leads", Key="a b/1.json", Body=body, ContentType="application/json", ChecksumAlgorithm="SHA256",
            Metadata={"effect-key": "k-1"}, **more,
        )

    created = put(b"{}", IfNoneMatch="*")["ResponseMetadata"]["HTTPStatusCode"]
    exists = refusal(lambda: put(b"[]", IfNoneMatch="*"))
    head = client.head_object(Bucket="leads", Key="a b/1.json", ChecksumMode="ENABLED")
    read = client.get_object(Bucket="leads", Key="a b/1.json")["Body"].read().decode()
    client.delete_object(Bucket="leads", Key="a b/1.json")
    absent = refusal(lambda: client.get_object(Bucket="leads", Key="a b/1.json"))
    return {
        "created": created, "exists": exists, "read": read, "absent": absent,
        "checksum": head["ChecksumSHA256"], "metadata": head["Metadata"], "type": head["ContentType"],
    }


def ses():
    client = aws("sesv2", os.environ["SES_URL"])

    def send(to):
        content = {"Simple": {"Subject": {"Data": "Hello"}, "Body": {"Text": {"Data": "Hello"}}}}
        return client.send_email(
            FromEmailAddress="Shop <shop@example.com>", Destination={"ToAddresses": [to]}, Content=content,
            EmailTags=[{"Name": "effect_key", "Value": "k-1"}],
        )

    return {
        "sent": send("ada@example.com")["MessageId"],
        "suppressed": refusal(lambda: send("ada@bounce.example")),
    }


def fcm():
    url = os.environ["FCM_URL"]
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    account = {
        "type": "service_account", "project_id": "leads", "client_email": "push@leads.example",
        "private_key": pem, "token_uri": f"{url}/token",
    }
    scopes = ["https://www.googleapis.com/auth/firebase.messaging"]
    session = AuthorizedSession(service_account.Credentials.from_service_account_info(account, scopes=scopes))
    message = {"message": {"token": "device", "notification": {"title": "Hello"}}}
    # The second one has a token that is used up, and is sent again with a new one.
    answers = [session.post(f"{url}/v1/projects/leads/messages:send", json=message) for _ in range(2)]
    return [[answer.status_code, answer.json()["name"]] for answer in answers]


print(json.dumps({"s3": s3(), "ses": ses(), "fcm": fcm()}))
