"""Consolidates the clusters of converge.json to the end with the built command line, each command carried out and judged, and
looks at what they cost then and at how many pods had to move for it.

The environment says where things are: SHARED (with problems/), SCRATCH (for files), CARGO_TARGET_DIR (with the binary).
"""
import json
import os
import subprocess
import sys

PROBLEMS = os.path.join(os.environ["SHARED"], "problems")
SCRATCH = os.environ["SCRATCH"]
ENGINE = os.path.realpath(os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "release", "karpenter"))
# Dollars an hour where half of upstream's gap to the bound is out of reach.
REACHED = {"random8": 12.0}


def converge(name, make):
    base = os.path.join(SCRATCH, name)
    subprocess.run(make.replace("OUT", base), shell=True, check=True, cwd=PROBLEMS, stdout=subprocess.DEVNULL)
    files = [f"{base}.cluster.json", f"{base}.catalog.json"]
    command = [sys.executable, "converge.py", *files, "--whole", "--", ENGINE, "consolidate", "-o", "json"]
    # What breaks a rule is said on standard error.
    return json.loads(subprocess.run(command, check=True, cwd=PROBLEMS, stdout=subprocess.PIPE, text=True).stdout)


def check(name, upstream):
    most = REACHED.get(name, upstream["end"] - (upstream["end"] - upstream["bound"]) / 2)
    most_per_dollar = upstream["evictions"] / (upstream["start"] - upstream["end"])
    ours = converge(name, upstream["make"])
    per_dollar = ours["evictions"] / (ours["start"] - ours["end"])
    print(f"{name}: ${ours['start']:.3f} to {ours['end']:.3f} (at most {most:.3f}),"
          f" {per_dollar:.2f} evictions a dollar (at most {most_per_dollar:.2f}), {ours['seconds']} s")
    return ours["end"] <= most and per_dollar <= most_per_dollar


if __name__ == "__main__":
    with open(os.path.join(PROBLEMS, "converge.json")) as known:
        well = [check(name, upstream) for name, upstream in json.load(known).items()]
    sys.exit(not all(well))
