"""Prints each crate of `cargo metadata`, without features and with each of its features: a line `crate [feature]`."""
import json
import sys

for package in json.load(sys.stdin)["packages"]:
    print(package["name"])
    for feature in sorted(package["features"]):
        if feature != "default":
            print(package["name"], feature)
