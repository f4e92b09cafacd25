"""Writes what moto's DescribeInstanceTypes says of each type of us-east-1: `python dump.py FILE`, where moto==5.2.5 is.

The file is an input of tests/published.rs. It must not be committed.
"""

import json
import sys

from moto.ec2.models.instance_types import INSTANCE_TYPES

with open(sys.argv[1], "w") as file:
    json.dump([INSTANCE_TYPES[name] for name in sorted(INSTANCE_TYPES)], file)
