"""Plans real pods against a real catalog with the built command line, lets the independent judge check the plan, and
looks at the time.

The environment says where things are: SHARED (with problems/), SCRATCH (for files), CARGO_TARGET_DIR (with the binary).
"""
import json
import os
import subprocess
import sys
import time

PROBLEMS = os.path.join(os.environ["SHARED"], "problems")
SCRATCH = os.environ["SCRATCH"]
ENGINE = os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "release", "karpenter")
REPEATS = 3
# Planning the 8,152 pods of the trace takes well under a second; CI machines are slow and shared.
MAX_REAL_SECONDS = 5.0


def run(*command, **options):
    return subprocess.run(command, stdin=subprocess.DEVNULL, check=True, text=True, **options)


def plan(base, repeats):
    """Plans BASE.cluster.json with BASE.catalog.json and gives back the plan and the wall time."""
    started = time.monotonic()
    files = ["--cluster", f"{base}.cluster.json", "--catalog", f"{base}.catalog.json"]
    printed = run(ENGINE, "plan", *files, "-o", "json", "--repeat", str(repeats), stdout=subprocess.PIPE).stdout
    seconds = time.monotonic() - started
    with open(f"{base}.out.json", "w") as out:
        out.write(printed)
    return json.loads(printed), seconds


def judge(base):
    """The last line of the judge, who exits with a failure if there is a violation."""
    files = [f"{base}.{part}.json" for part in ("cluster", "catalog", "out")]
    verdict = subprocess.run(
        [sys.executable, os.path.join(PROBLEMS, "judge.py"), *files],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )
    print(verdict.stdout, end="")
    return verdict.returncode == 0


def placed(decision):
    new = sum(len(claim["pods"]) for claim in decision["newNodeClaims"])
    return new + sum(len(pods) for pods in decision["existingNodes"].values())


def check(base, repeats=1):
    """Plans and judges one problem; gives back whether all is well, the plan and the wall time."""
    decision, seconds = plan(base, repeats)
    print(f"{os.path.basename(base)}: {decision['pods']} pods, {placed(decision)} placed, {len(decision['errors'])} not,"
          f" {len(decision['newNodeClaims'])} nodes at ${decision['hourlyCost']:.2f}/h")
    every_pod_once = placed(decision) + len(decision["errors"]) == decision["pods"]
    if not every_pod_once:
        print("the pods placed and those not placed are not all pods")
    return judge(base) and every_pod_once, decision, seconds


def real():
    base = os.path.join(SCRATCH, "openb")
    run(sys.executable, os.path.join(PROBLEMS, "real.py"), "openb", base)
    well, decision, seconds = check(base, REPEATS)
    took = decision["setupSeconds"] + min(decision["solveSeconds"])
    print(f"setup and solve {took:.3f} s at best of {REPEATS}, {seconds:.2f} s in all")
    if placed(decision) != decision["pods"]:
        sys.exit("not every pod was placed")
    if took > MAX_REAL_SECONDS:
        sys.exit(f"planning took more than {MAX_REAL_SECONDS} s")
    return well


if __name__ == "__main__":
    sys.exit(not real())
