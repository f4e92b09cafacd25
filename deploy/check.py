"""Checks that `manifests/karpenter.yaml` is what the chart renders to with its defaults, in kube-system; `--write` writes it.

The labels that only objects of Helm have are left out. Needs helm.
"""
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
PLAIN = HERE / "manifests" / "karpenter.yaml"
HEAD = """# The controller, without Helm and without the custom resource definitions. Written by deploy/check.py.
#
#     kubectl apply --server-side -f karpenter-kube/crds -f deploy/manifests/karpenter.yaml
"""
OF_HELM = ("app.kubernetes.io/managed-by:", "helm.sh/chart:", "# Source:")


def rendered():
    command = ["helm", "template", "karpenter", str(HERE / "chart"), "--namespace", "kube-system", "--kube-version", "1.35"]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(run.stderr)
    lines = [line for line in run.stdout.splitlines(keepends=True) if not line.strip().startswith(OF_HELM)]
    return HEAD + "".join(lines)


def main():
    text = rendered()
    if "--write" in sys.argv[1:]:
        PLAIN.write_text(text)
    elif PLAIN.read_text() != text:
        sys.exit(f"{PLAIN} is not what the chart renders to: run {sys.argv[0]} --write")
    print(f"{PLAIN}: {text.count(chr(10) + 'kind: ')} objects, as the chart has them")


if __name__ == "__main__":
    main()
