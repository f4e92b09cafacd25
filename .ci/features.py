"""Prints each crate of `cargo metadata`, without features and with each of its features: a line `crate [feature]`."""
import json
import sys

# Another step builds it, and it takes minutes.
ELSEWHERE = {("karpenter-aws", "replay")}

for package in json.load(sys.stdin)["packages"]:
    print(package["name"])
    for feature in sorted(package["features"]):
        if feature != "default" and (package["name"], feature) not in ELSEWHERE:
            print(package["name"], feature)
