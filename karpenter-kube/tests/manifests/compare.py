"""Tries the manifests of `accepted` and `rejected` on an API server, with one folder of CRDs or with two that are compared.

    compare.py KUBECONFIG CRDS [OTHER_CRDS]

The CRDs of the cluster are replaced, and their objects are gone afterwards: use a cluster made for this. Each document of a
manifest is created, or replaces what is there by its name; a status is written after the rest. In `rejected` only the last write
must be refused, with the text of the line `# expect:` (asked of CRDS alone). Needs kubectl and PyYAML.
"""
import copy
import json
import pathlib
import subprocess
import sys

import yaml

HERE = pathlib.Path(__file__).parent
OF_THE_SERVER = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields")
PLURALS = {"NodePool": "nodepools", "NodeClaim": "nodeclaims", "NodeOverlay": "nodeoverlays", "KWOKNodeClass": "kwoknodeclasses", "EC2NodeClass": "ec2nodeclasses"}
EARLIER = "an earlier write was refused"


def kubectl(*arguments, object=None):
    """Exit status, output and errors."""
    command = ["kubectl", "--kubeconfig", sys.argv[1], *arguments]
    run = subprocess.run(command, input=object and json.dumps(object), capture_output=True, text=True)
    return run.returncode, run.stdout, run.stderr.strip()


def must(*arguments):
    code, output, error = kubectl(*arguments)
    if code != 0:
        sys.exit(f"kubectl {' '.join(arguments)}: {error}")
    return output


def install(folder):
    must("delete", "crd", "--ignore-not-found", "nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "nodeoverlays.karpenter.sh", "kwoknodeclasses.karpenter.kwok.sh", "ec2nodeclasses.karpenter.k8s.aws")
    must("create", "-f", folder)
    must("wait", "--for=condition=Established", "--timeout=60s", "-f", folder)
    print(must("get", "-f", folder, "-o", "name").strip().replace("\n", " "))


def write(documents):
    """What is stored in the end, and the error of the last write if it is refused. An earlier one must not be."""
    is_there = False
    for number, document in enumerate(documents):
        is_last = number + 1 == len(documents)
        for subresource in ["", "status"] if "status" in document else [""]:
            verb = ["replace" if is_there else "create", "--validate=ignore", "-f", "-", "-o", "json"]
            code, output, error = kubectl(*verb, *([f"--subresource={subresource}"] if subresource else []), object=document)
            is_last_write = is_last and subresource == ("status" if "status" in document else "")
            if code != 0:
                return None, error if is_last_write else f"{EARLIER}: {error}"
            is_there = True
    return strip(json.loads(output)), None


def strip(stored):
    stored = copy.deepcopy(stored)
    for key in OF_THE_SERVER:
        stored["metadata"].pop(key, None)
    return stored


def try_all():
    """By manifest: the stored object and the error."""
    results = {}
    for path in sorted(HERE.glob("*/*.yaml")):
        documents = list(yaml.safe_load_all(path.read_text()))
        results[path] = write(documents)
        plural = PLURALS[documents[0]["kind"]]
        must("delete", plural, "--ignore-not-found", documents[0]["metadata"]["name"])
    return results


def judge(path, stored, error):
    """What is wrong, by the folder of the manifest and what it expects."""
    expected = next((line[10:] for line in path.read_text().splitlines() if line.startswith("# expect: ")), None)
    if path.parent.name == "accepted":
        return error
    if expected is None:
        return "it does not say what to expect"
    if error is None:
        return f"accepted; expected: {expected}"
    is_right = expected in error and not error.startswith(EARLIER)
    return None if is_right else f"expected: {expected}\n    said: {error}"


def main():
    folders = sys.argv[2:]
    runs = []
    for folder in folders:
        install(folder)
        runs.append(try_all())
    wrong = 0
    for path, (stored, error) in runs[0].items():
        name, fault = f"{path.parent.name}/{path.stem}", judge(path, stored, error)
        for other_stored, other_error in (run[path] for run in runs[1:]):
            if (error is None) != (other_error is None):
                fault = f"{fault or ''}\n    {folders[0]}: {error or 'accepted'}\n    {folders[1]}: {other_error or 'accepted'}"
            elif stored != other_stored:
                fault = f"{fault or ''}\n    stored as {json.dumps(stored)}\n    and as    {json.dumps(other_stored)}"
        if fault:
            wrong += 1
            print(f"{name}: {fault}")
    print(f"{len(runs[0])} manifests, {wrong} not as they should be, in {' and '.join(folders)}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
