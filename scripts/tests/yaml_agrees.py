"""Checks the YAML of cloudrun/ against the flags that its scripts pass (golden files) and against what Cloud Run allows.

Called by yaml.bats: yaml_agrees.py ROOT service|job|build|stage FILE. Ends with an error that names what differs.
"""

import pathlib
import shlex
import sys

import yaml

root = pathlib.Path(sys.argv[1])
what = sys.argv[2]
document = yaml.safe_load(pathlib.Path(sys.argv[3]).read_text())


def flags(golden, start):
    """The flags of the first command that begins so, as a dictionary: --no-x is x = False, --x is x = True."""
    for line in (root / "scripts/tests/golden" / golden).read_text().splitlines():
        words = shlex.split(line)
        if words[: len(start)] == start:
            found = {}
            for word in words[len(start):]:
                if word.startswith("--"):
                    name, equals, value = word[2:].partition("=")
                    if not equals:
                        name, value = (name[3:], False) if name.startswith("no-") else (name, True)
                    found[name] = value
            return found
    raise SystemExit(f"{golden} has no command {' '.join(start)}")


def pairs(text):
    return dict(pair.split("=", 1) for pair in text.split(","))


def same(name, left, right):
    if left != right:
        raise SystemExit(f"{name}: the file says {left!r}, the script {right!r}")


def probe(name, spec, text):
    wanted = pairs(text)
    http = spec.pop("httpGet")
    same(name, {**{key: str(value) for key, value in spec.items()},
                **{f"httpGet.{key}": str(value) for key, value in http.items()}}, wanted)


def service():
    deploy = flags("deploy-l4.txt", ["gcloud", "beta", "run", "deploy", "dgemma"])
    capitals = {
        "my-project": "PROJECT", "europe-west4": "REGION", f"{5:040d}": "COMMIT",
        "diffusiongemma-26B-A4B-it-NVFP4": "MODEL", f"{7:064d}": "DIGEST",
    }
    for name, value in deploy.items():
        for literal, word in capitals.items():
            if isinstance(value, str):
                value = value.replace(literal, word)
        deploy[name] = value
    used = set()

    def flag(name):
        used.add(name)
        return deploy[name]

    same("kind", (document["apiVersion"], document["kind"]), ("serving.knative.dev/v1", "Service"))
    metadata, template = document["metadata"], document["spec"]["template"]
    notes, spec = template["metadata"]["annotations"], template["spec"]
    (container,) = spec["containers"]
    (volume,) = spec["volumes"]
    limits = container["resources"]["limits"]
    same("labels", metadata["labels"].pop("cloud.googleapis.com/location"), flag("region"))
    same("labels", metadata["labels"], pairs(flag("labels")))
    same("labels of the revision", template["metadata"]["labels"], pairs(flag("labels")))
    # Only the beta has mount options.
    same("launch stage", metadata["annotations"], {"run.googleapis.com/launch-stage": "BETA"})
    same("image", container["image"], flag("image"))
    same("GPUs", limits["nvidia.com/gpu"], flag("gpu"))
    same("GPU", spec["nodeSelector"], {"run.googleapis.com/accelerator": flag("gpu-type")})
    same("processors", limits["cpu"], flag("cpu"))
    same("memory", limits["memory"], flag("memory"))
    same("concurrency", spec["containerConcurrency"], int(flag("concurrency")))
    same("timeout", spec["timeoutSeconds"], int(flag("timeout")))
    same("account", spec["serviceAccountName"], flag("service-account"))
    same("port", container["ports"], [{"containerPort": int(flag("port"))}])
    same("variables", {entry["name"]: entry["value"] for entry in container["env"]}, pairs(flag("set-env-vars")))
    same("annotations", notes, {
        "run.googleapis.com/gpu-zonal-redundancy-disabled": str(not flag("gpu-zonal-redundancy")).lower(),
        "run.googleapis.com/cpu-throttling": str(flag("cpu-throttling")).lower(),
        "run.googleapis.com/execution-environment": flag("execution-environment"),
        "run.googleapis.com/network-interfaces":
            f'[{{"network":"{flag("network")}","subnetwork":"{flag("subnet")}"}}]',
        "run.googleapis.com/vpc-access-egress": flag("vpc-egress"),
        "autoscaling.knative.dev/minScale": flag("min-instances"),
        "autoscaling.knative.dev/maxScale": flag("max-instances"),
    })
    startup = container["startupProbe"]
    if startup["initialDelaySeconds"] > 240 or startup["periodSeconds"] * startup["failureThreshold"] > 1800 or startup["timeoutSeconds"] > startup["periodSeconds"]:
        raise SystemExit("the startup probe is beyond what Cloud Run allows with a GPU")
    probe("startup probe", startup, flag("startup-probe"))
    probe("liveness probe", container["livenessProbe"], flag("liveness-probe"))
    wanted = pairs(flag("add-volume"))
    same("volume", {
        "name": volume["name"], "type": "cloud-storage", "bucket": volume["csi"]["volumeAttributes"]["bucketName"],
        "readonly": str(volume["csi"]["readOnly"]).lower(),
        "mount-options": volume["csi"]["volumeAttributes"]["mountOptions"].replace(",", ";"),
    }, wanted)
    same("driver", volume["csi"]["driver"], "gcsfuse.run.googleapis.com")
    (mount,) = container["volumeMounts"]
    same("mount", {"volume": mount["name"], "mount-path": mount["mountPath"]}, pairs(flag("add-volume-mount")))
    # Who may call is no part of the file.
    same("no caller without a token", flag("allow-unauthenticated"), False)
    rest = set(deploy) - used - {"project"}
    same("flags that the file does not know", rest, set())
    # Cloud Run's minima for each GPU.
    for golden, cpus, memory in (("deploy-l4.txt", 4, 16), ("deploy-rtx.txt", 20, 80)):
        found = flags(golden, ["gcloud", "beta", "run", "deploy", "dgemma"])
        if int(found["cpu"]) < cpus or int(found["memory"].removesuffix("Gi")) < memory:
            raise SystemExit(f"{golden}: less than Cloud Run's minimum for {found['gpu-type']}")


def job():
    same("kind", (document["apiVersion"], document["kind"]), ("run.googleapis.com/v1", "Job"))
    spec = document["spec"]["template"]["spec"]
    task = spec["template"]["spec"]
    (container,) = task["containers"]
    same("tasks", (spec["taskCount"], spec["parallelism"]), (200, 50))
    same("account", task["serviceAccountName"], "dgem-batch@my-project.iam.gserviceaccount.com")
    same("image", container["image"].split("@")[1], f"sha256:{7:064d}")
    same("arguments", container["args"], ["/mnt/batch/first", "-t", "support_triage", "--jobs", "4"])
    same("mount", container["volumeMounts"][0]["name"], task["volumes"][0]["name"])
    same("bucket", task["volumes"][0]["csi"]["volumeAttributes"]["bucketName"], "my-project-dgem-batch-europe-west4")
    user = (root / "cloudrun/cpu.Dockerfile").read_text().split("USER ")[1].split()[0]
    same("owner", task["volumes"][0]["csi"]["volumeAttributes"]["mountOptions"], f"uid={user},gid={user}")
    if any("TOKEN" in entry["name"] or "KEY" in entry["name"] for entry in container["env"]):
        raise SystemExit("a secret is no variable of the job")


def build(golden, start):
    given = pairs(flags(golden, ["gcloud", "builds", "submit", start])["substitutions"])
    text = pathlib.Path(sys.argv[3]).read_text()
    missing = [name for name in given if "${" + name + "}" not in text]
    same("substitutions that the file does not use", missing, [])
    known = {"PROJECT_ID", *given}
    wanted = {part.split("}")[0] for line in text.splitlines() if not line.startswith("#") for part in line.split("${")[1:]}
    same("words that nobody fills", wanted - known, set())
    if int(document["timeout"].removesuffix("s")) < 3600 or document["options"]["diskSizeGb"] < 100:
        raise SystemExit("not enough time or disk")
    same("logging", document["options"]["logging"], "GCS_ONLY")


{
    "service": service,
    "job": job,
    "build": lambda: build("build-l4.txt", "ROOT"),
    "stage": lambda: build("stage.txt", "ROOT/cloudrun"),
    "stage-token": lambda: build("stage-token.txt", "ROOT/cloudrun"),
}[what]()
