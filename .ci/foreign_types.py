"""Fails if a type of another crate is in the public interface of karpenter-core.

An embedder must not have to follow the versions of the crates that the core happens to use. The traits of serde are the
exception: that the objects of the API implement them is the point.

cargo says which types are foreign: with every dependency private, the lint `exported_private_dependencies` names them.
"""
import os
import re
import subprocess
import sys

ALLOWED = {"serde", "serde_core"}
LINT = "exported_private_dependencies"


def diagnostics():
    """What the compiler of the nightly toolchain says about the core."""
    target = os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "public")
    # Not all that is public is used; other lints have a step of their own.
    environment = dict(os.environ, RUSTFLAGS=f"--cap-lints warn -W {LINT}", CARGO_TARGET_DIR=target)
    command = ["cargo", "+nightly", "check", "-p", "karpenter-core", "-Zpublic-dependency"]
    # A change of the time of this file is enough for cargo to compile the core again and so to say it all again.
    os.utime("karpenter-core/src/lib.rs")
    run = subprocess.run(command, env=environment, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    if run.returncode != 0:
        sys.exit(run.stderr)
    return run.stderr


def main():
    text = diagnostics()
    found = re.findall(r"^warning: (.* from private dependency '([^']+)' in public interface)\n\s+--> (\S+)", text, re.M)
    if not found:
        sys.exit("The lint found nothing, not even the traits of serde: this check does not work with this toolchain.")
    foreign = [(message, place) for message, crate, place in found if crate not in ALLOWED]
    for message, place in foreign:
        print(f"{place}: {message}")
    print(f"{len(foreign)} foreign types in the public interface of karpenter-core")
    sys.exit(bool(foreign))


if __name__ == "__main__":
    main()
