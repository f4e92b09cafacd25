"""An AWS on this machine for the tests of `karpenter-aws`: moto, and what it lacks.

    server.py [port]

prints the port that it listens on. Fleets are bought once for each client token, from the override of the lowest priority
that is not exhausted; machines get the security groups and the profile of their template. Lists of instance profiles are
narrowed by their path. The price list has four types, two on a page.

    POST /karpenter/exhausted   [["m5.large" or "*", zone or "*", "spot" or "on-demand" or "*"], ...]
    POST /karpenter/lost        {"action": "CreateFleet"}: the next such call is carried out, and its answer is an error
"""

import io
import json
import re
import sys

from moto.core.responses import ActionResult
from moto.ec2.responses import EC2Response
from moto.ec2.responses.fleets import Fleets
from moto.iam.responses import IamResponse
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

PRICES = {"m5.large": "0.096", "m5.xlarge": "0.192", "c5.large": "0.085", "m6g.large": "0.077"}
METAL_PRICES = {"m5.metal": "4.608"}
PRODUCTS_A_PAGE = 2

exhausted = []
lost = []
replies = {}
plain_create_fleet = Fleets.create_fleet


def is_exhausted(override, kind):
    has = (override.get("InstanceType"), override.get("AvailabilityZone"), kind)
    return any(all(wanted in ("*", value) for wanted, value in zip(entry, has)) for entry in exhausted)


def split(configs, kind):
    """What can be bought, cheapest first, and an error for each override that cannot."""
    left, errors = [], []
    for config in configs:
        template = config["LaunchTemplateSpecification"]
        for override in config.get("Overrides", []):
            if is_exhausted(override, kind):
                errors.append({
                    "LaunchTemplateAndOverrides": {"LaunchTemplateSpecification": template, "Overrides": override},
                    "Lifecycle": kind,
                    "ErrorCode": "InsufficientInstanceCapacity",
                    "ErrorMessage": "There is no capacity for this.",
                })
            else:
                left.append({"LaunchTemplateSpecification": template, "Overrides": [override]})
    left.sort(key=lambda config: float(config["Overrides"][0].get("Priority") or 0))
    return left, errors


def follow_template(backend, machines, name):
    """What moto leaves out of a template when it makes the machines of a fleet."""
    template = backend.get_launch_template_by_name(name)
    data = template.get_version(template.latest_version_number).data
    groups = [group for interface in data.get("NetworkInterfaces", []) for group in interface.get("Groups", [])]
    profile = (data.get("IamInstanceProfile") or {}).get("Name")
    requests = list(backend.spot_instance_requests.values())
    for machine in machines:
        machine.spot_instance_request_id = next((r.id for r in requests if r.instance is machine), None)
        if groups:
            machine.security_groups = [backend.get_security_group_from_id(group) for group in groups]
            for interface in machine.nics.values():
                interface._group_set = list(machine.security_groups)
        if profile:
            arn = f"arn:aws:iam::{backend.account_id}:instance-profile/{profile}"
            machine.iam_instance_profile = {"Arn": arn, "Id": "AIPA" + profile}


def create_fleet(self):
    token = self._get_param("ClientToken")
    if token in replies:
        return replies[token]
    self.error_on_dryrun()
    kind = self._get_param("TargetCapacitySpecification")["DefaultTargetCapacityType"]
    left, errors = split(self._get_param("LaunchTemplateConfigs", []), kind)
    if left:
        plain = self._get_param
        self._get_param = lambda name, *rest, **more: left if name == "LaunchTemplateConfigs" else plain(name, *rest, **more)
        try:
            result = plain_create_fleet(self).result
        finally:
            self._get_param = plain
        ids = [i for instance in result.get("Instances", []) for i in instance["InstanceIds"]]
        machines = [self.ec2_backend.get_instance(i) for i in ids]
        follow_template(self.ec2_backend, machines, left[0]["LaunchTemplateSpecification"]["LaunchTemplateName"])
    else:
        result = {"FleetId": "fleet-nothing", "Instances": []}
    reply = ActionResult({**result, "Errors": errors})
    if token:
        replies[token] = reply
    return reply


Fleets.create_fleet = EC2Response.create_fleet = create_fleet


def product(name, price):
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": price}}
    terms = {"OnDemand": {"term": {"priceDimensions": {"dimension": dimension}}}}
    return json.dumps({"product": {"attributes": {"instanceType": name}}, "terms": terms})


def get_products(request):
    """What moto has no service for: a page of the price list."""
    wanted = {entry["Field"]: entry["Value"] for entry in request["Filters"]}
    prices = METAL_PRICES if "metal" in wanted["productFamily"] else PRICES
    products = [product(name, price) for name, price in prices.items()]
    start = int(request.get("NextToken") or 0)
    end = start + PRODUCTS_A_PAGE
    page = {"FormatVersion": "aws_v1", "PriceList": products[start:end]}
    return {**page, "NextToken": str(end)} if end < len(products) else page


def list_instance_profiles(self):
    prefix = self._get_param("PathPrefix") or "/"
    profiles = [profile for profile in self.backend.get_instance_profiles() if profile.path.startswith(prefix)]
    return ActionResult({"InstanceProfiles": profiles})


IamResponse.list_instance_profiles = list_instance_profiles

moto_app = DomainDispatcherApplication(create_backend_app)


def action_of(environ, body):
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    found = re.search(rb"(?:^|&)Action=([A-Za-z]+)", body)
    return target.split(".")[-1] if target else found.group(1).decode() if found else ""


def app(environ, start):
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)
    path = environ.get("PATH_INFO", "")
    if path.startswith("/karpenter/"):
        if path.endswith("exhausted"):
            exhausted[:] = json.loads(body)
        else:
            lost.append(json.loads(body)["action"])
        start("200 OK", [("Content-Length", "0")])
        return []
    action = action_of(environ, body)
    if action == "GetProducts":
        text = json.dumps(get_products(json.loads(body))).encode()
        start("200 OK", [("Content-Type", "application/x-amz-json-1.1"), ("Content-Length", str(len(text)))])
        return [text]
    if action not in lost:
        return moto_app(environ, start)
    lost.remove(action)
    list(moto_app(environ, lambda *_: None))
    text = b"<Response><Errors><Error><Code>InternalError</Code><Message>lost</Message></Error></Errors></Response>"
    start("500 Internal Server Error", [("Content-Type", "text/xml"), ("Content-Length", str(len(text)))])
    return [text]


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    server = make_server("127.0.0.1", port, app, threaded=True, request_handler=MotoRequestHandler)
    print(server.server_port, flush=True)
    server.serve_forever()
