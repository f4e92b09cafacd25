"""Checks that `manifests/karpenter.yaml` is what the chart renders to with its defaults, in kube-system; `--write` writes it.
Checks too which values the chart takes, and what becomes of them.

The labels that only objects of Helm have are left out. Needs helm.
"""
import json
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
PLAIN = HERE / "manifests" / "karpenter.yaml"
HEAD = """# The controller, without Helm and without the custom resource definitions. Written by deploy/check.py.
#
#     kubectl apply --server-side -f karpenter-kube/crds -f deploy/manifests/karpenter.yaml
"""
OF_HELM = ("app.kubernetes.io/managed-by:", "helm.sh/chart:", "# Source:")


# Values as files and `--set` have them, with the variables of the controller. Karpenter's chart has reservedENIs as a text, `--set` makes
# one of a number with a point, and Helm reads all numbers of files as floats.
ACCEPTED = [
    ({"reservedENIs": "1"}, {"RESERVED_ENIS": "1"}),
    ({"reservedENIs": 1000000}, {"RESERVED_ENIS": "1000000"}),
    ({"vmMemoryOverheadPercent": "0.1"}, {"VM_MEMORY_OVERHEAD_PERCENT": "0.1"}),
    ({"vmMemoryOverheadPercent": 0.1}, {"VM_MEMORY_OVERHEAD_PERCENT": "0.1"}),
    ({"vmMemoryOverheadPercent": 0}, {"VM_MEMORY_OVERHEAD_PERCENT": "0"}),
    ({"disableDryRun": True, "awsFeatureGates": {"nodeClassCEL": True}}, {"DISABLE_DRY_RUN": "true", "AWS_FEATURE_GATES": "NodeClassCEL=true"}),
    ({"kubeClientQPS": 1000000, "kubeClientBurst": 2000000}, {"KUBE_CLIENT_QPS": "1000000", "KUBE_CLIENT_BURST": "2000000"}),
]
REFUSED = [
    {"reservedENIs": "one"},
    {"reservedENIs": "-1"},
    {"reservedENIs": -1},
    {"reservedENIs": "01"},
    {"vmMemoryOverheadPercent": "7.5"},
    {"vmMemoryOverheadPercent": ""},
    {"kubeClientQPS": 0},
    {"instanceFacts": {"branchInterfaces": {"m5.large": "9"}}},
    {"instanceFacts": {"branchinterfaces": {}}},
]


def render(values):
    """What Helm makes of the chart with these values."""
    command = ["helm", "template", "karpenter", str(HERE / "chart"), "--namespace", "kube-system", "--kube-version", "1.35", "--values", "-"]
    return subprocess.run(command, input=json.dumps(values), capture_output=True, text=True)


def rendered():
    run = render({})
    if run.returncode != 0:
        sys.exit(run.stderr)
    lines = [line for line in run.stdout.splitlines(keepends=True) if not line.strip().startswith(OF_HELM)]
    return HEAD + "".join(lines)


def of_aws(settings):
    return {"provider": "aws", "settings": {"clusterName": "test", **settings}}


def check_values():
    for settings, expected in ACCEPTED:
        run = render(of_aws(settings))
        if run.returncode != 0:
            sys.exit(f"{settings} is refused: {run.stderr}")
        found = dict(re.findall(r'- name: ([A-Z_]+)\n +value: "(.*)"', run.stdout))
        wrong = {name: found.get(name) for name in expected if found.get(name) != expected[name]}
        if wrong:
            sys.exit(f"{settings} becomes {wrong}, not {expected}")
    for settings in REFUSED:
        if render(of_aws(settings)).returncode == 0:
            sys.exit(f"{settings} is not refused")


def check_facts():
    """What EC2 does not say reaches the controller as a file, with numbers as they were written."""
    facts = {"branchInterfaces": {"m5.large": 9}, "networkBandwidthMbps": {"p5.48xlarge": 3200000}}
    run = render(of_aws({"instanceFacts": facts}))
    written = re.search(r"^  instance-facts.json: (.*)$", run.stdout, re.M)
    if not written or json.loads(json.loads(written[1])) != facts or "3.2e" in written[1]:
        sys.exit(f"facts of instance types become {written and written[1]}: {run.stderr}")
    parts = ["mountPath: /etc/karpenter", "value: /etc/karpenter/instance-facts.json", "checksum/instance-facts: "]
    for part in parts:
        if part not in run.stdout:
            sys.exit(f"with facts of instance types there is no {part}")
    if "instance-facts" in render({"settings": {"instanceFacts": facts}}).stdout:
        sys.exit("facts of instance types are there without EC2")


def check_admin():
    """The administrators of the cluster may write the node classes of the provider, and no others."""
    classes = {"kwok": ["kwoknodeclasses"], "aws": ["ec2nodeclasses"], "": []}
    for provider, expected in classes.items():
        run = render({**of_aws({}), "provider": provider})
        roles = [text for text in run.stdout.split("\n---\n") if re.search(r"^kind: ClusterRole\n(.*\n)*?  name: karpenter-admin$", text, re.M)]
        found = [name for text in roles for name in re.findall(r"resources: \[(\w+nodeclasses),.*\]\n    verbs: \[.*create, delete, patch\]", text)]
        if found != expected:
            sys.exit(f"with the provider {provider!r} administrators may write {found}, not {expected}: {run.stderr}")


def main():
    text = rendered()
    if "--write" in sys.argv[1:]:
        PLAIN.write_text(text)
    elif PLAIN.read_text() != text:
        sys.exit(f"{PLAIN} is not what the chart renders to: run {sys.argv[0]} --write")
    check_values()
    check_facts()
    check_admin()
    print(f"{PLAIN}: {text.count(chr(10) + 'kind: ')} objects, as the chart has them")


if __name__ == "__main__":
    main()
